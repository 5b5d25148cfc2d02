"""A cloud provider for OpenStack on openstacksdk. Start reading at `provider`."""
