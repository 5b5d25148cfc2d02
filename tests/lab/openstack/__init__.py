"""OpenStack on this machine, for tests: Keystone, Placement, Glance, Neutron, Nova and Octavia, as
they are on the package index, over SQLite, on the loopback, without root. See `cloud`."""
