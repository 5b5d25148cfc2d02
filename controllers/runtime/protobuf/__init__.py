"""Kubernetes' Protobuf: which messages there are, the envelope around an object, and objects as
dicts (for stages 1 and 6).

Comes in: bytes from the wing `api`. Goes out: what `json.loads` of the same object's JSON would
give. Imported when the first Protobuf is to be read or written: a process that talks JSON only
needs none of it.

Read first: `kubernetes.proto`, `envelope.py`, `reading.py`. Imports no wing.
"""
