"""The ssh-key controller; see controller.py for where to begin."""
