"""Every fault that the manager must survive, by its ID: `make faults`.

`catalogue.py` is the table: ID, name, what is done, for how long. The functions that do it stand in
`apiserver.py`, `leadership.py`, `cloud.py` and `objects.py`; `networks.py` has what they put into
the fault proxy. `run.py` does one run over a real kube-apiserver on the stage of the failover
tests, and `judge.py` judges it by the audit log and the cloud's journal. `mutants.py` breaks the
product, so that a run is seen to fail. `page.py` is the page docs/reports/faults.md.
"""
