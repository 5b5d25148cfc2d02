"""The service controller; see controller.py for where to begin."""
