"""A whole cluster on this machine: `make cluster`, and `Cluster` for tests."""
