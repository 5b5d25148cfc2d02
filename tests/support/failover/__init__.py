"""Two managers over one cluster and one cloud, and what proves that only one of them wrote at a
time.

Both share one fake cloud, whose log says who called: ours by `FakeCloud.share`, the Go manager
(`tests/lab/bench/goccm/remote.go`) over the HTTP of `cloudserver.py`.
`supervisor.py` runs the managers, kills them and starts what ended, as a kubelet does. `churn.py`
changes nodes and Services meanwhile. `audit.py` reads who wrote from the API server's audit log,
`fencing.py` judges it, and `agreement.py` compares cloud and cluster at the end. `stage.py` puts
these together for a test.
"""
