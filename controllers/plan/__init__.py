"""Plan mode, --dry-run: all controllers run, nothing is written, and what they would do is shown.

Comes in: each request of a client (`clients.py`), answered in the API server's place
(`cluster.py`), and each call that changes the cloud, answered in the gateway's (`cloud.py`). Goes
out: the plan, as a table or JSON (`rows.py`). The controllers know nothing of it.

Read first: `run.py`, `cluster.py`, `cloud.py`.
"""
