"""Two managers over one cluster and one cloud, and what proves that only one of them wrote at a time.

`cloudserver.py` is the cloud that both share, over HTTP, with a journal of who called; `provider.py` (ours) and
`tests/bench/goccm/remote.go` (the Go manager) are its clients. `supervisor.py` runs the managers, kills them and starts
what ended, as a kubelet does. `churn.py` changes nodes and Services meanwhile. `audit.py` reads who wrote from the API
server's audit log, `fencing.py` judges it, and `agreement.py` compares cloud and cluster at the end. `stage.py` puts
these together for a test.
"""
