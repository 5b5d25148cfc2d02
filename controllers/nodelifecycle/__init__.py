"""The cloud-node-lifecycle controller; see controller.py for where to begin."""
