"""A cloud on one Linux machine: machines, routes and load balancers out of network namespaces,
kernel routes and nftables. It knows nothing of Kubernetes; its users talk to its HTTP API."""
