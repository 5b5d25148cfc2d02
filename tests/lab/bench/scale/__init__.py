"""`make scale`: one manager from its start to the loss of a zone, at several sizes of the cluster.

`life.py` does it and yields what each phase cost, which `span.py` takes from the audit log, the
cloud's journal and /proc. `page.py` writes docs/reports/scale.md and names the goals.
"""
