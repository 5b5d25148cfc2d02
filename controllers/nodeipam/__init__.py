"""The node IPAM controller; see controller.py for where to begin."""
