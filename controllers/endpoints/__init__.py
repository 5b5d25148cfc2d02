"""Health, metrics and what else the manager says about itself, over HTTP.

`health.py` collects the checks of the manager's parts, `pages.py` says what is answered on each
path, `servers.py` answers over plain HTTP and over HTTPS to those with access (`access.py`), as the
Go manager does. `serving.py` builds it all from the options.

Read first: `pages.py`, `servers.py`, `serving.py`.
"""
