"""Plan mode, --dry-run: all controllers run, nothing is written, and what they would do is shown.

Comes in: each write of the controllers and of the provider, refused and answered by stand-ins
(`cluster.py` for the API server, `cloud.py` for the cloud). Goes out: the plan
(`controllers/registration/plan.py`), as a table or JSON (`output.py`).

Read first: `run.py`, `cluster.py`, `settling.py`.
"""
