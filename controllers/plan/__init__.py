"""Plan mode, --dry-run: all controllers run, nothing is written, and what they would do is shown.

Comes in: each write of the controllers and of the provider, refused and answered by stand-ins
(`cluster.py` for the API server, `cloud.py` for the cloud). Goes out: the plan (`rows.py`), as a
table or JSON (`output.py`). The controllers' own descriptions of their calls to the cloud are
`planned_calls` in their entries (`controllers/registration/plan.py`).

Read first: `run.py`, `cluster.py`, `settling.py`.
"""
