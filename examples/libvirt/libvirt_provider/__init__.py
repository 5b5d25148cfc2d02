"""A cloud provider for virtual machines that libvirt runs. Start reading at `provider`."""
