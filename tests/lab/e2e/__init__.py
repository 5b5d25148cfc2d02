"""Kubernetes' own end-to-end tests, run on a cluster of localcloud's machines. `make e2e`."""
