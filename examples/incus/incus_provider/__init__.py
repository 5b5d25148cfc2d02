"""A cloud provider for Incus and LXD servers. Start reading at `provider`."""
