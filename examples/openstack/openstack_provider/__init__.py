"""A cloud provider for OpenStack on openstacksdk. Start reading at `provider`.

- `config`, `preflight`: the configuration, and what of it the cloud lacks
- `cloud`, `rest`: the login; requests, and OpenStack's errors as the contract's
- `servers`, `instances`, `machine`: from nodes to servers, what a node gets of its server; the
  server that the program runs on
- `routes`, `gathering`: one update of the router for many routes
- `annotations`, `plan`: what a Service asks for, with all its mistakes at once
- `ownership`, `finder`: names and tags; whose a load balancer is
- `steps`, `octavia`: from what Octavia has to what is wanted, one change in a call
- `addresses`, `securitygroups`: floating IPs and statuses; the nodes' security group
- `loadbalancer`: the order of things
- `main`: the cloud-controller-manager with this provider as its default
"""
