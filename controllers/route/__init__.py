"""The route controller; see controller.py for where to begin."""
