"""The manager: it builds controllers of a catalog, leads, and ends them in order."""
