"""The cloud-node controller; see controller.py for where to begin."""
