"""What the API server must allow: the manager's own permissions, whose account has them, and whether they were granted.

Comes in: the rules in the entries of the enabled controllers, and those of the manager itself (`own.py`). Goes out: the
manifest (`controllers/app/rbac.py`), and the check at the start with the missing rule in its message (`check.py`).
With --use-service-account-credentials each controller has an account of its own (`accounts.py`).
"""
