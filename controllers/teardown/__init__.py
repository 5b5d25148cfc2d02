"""`cloud-controller-manager teardown`: delete all that a cluster owns in the cloud.

`run.py` asks the API server, where there is one, who the cluster is and whether its manager still
works, starts the provider, goes on to `items.py` (what there is, and what is deleted of it) and
`deleting.py` (the rounds), and prints the tables.
"""
