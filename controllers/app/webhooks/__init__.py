"""Admission webhooks in the manager: which are served (`entry.py`), on which port and with which certificate.

Comes in: the options, the catalog of webhooks, and reviews of the API server over HTTPS, which go to
`controllers/admission/`. Goes out: its answers; and into the cluster a self-signed certificate that all replicas share
(`sharedpair.py`), with what the API server needs to trust it (`trust.py`).

Read first: `entry.py`, `serving.py`. Every replica serves, leading or not.
"""
