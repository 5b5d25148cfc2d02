"""A cloud provider to copy. Start reading at `provider`."""
