"""A cloud provider over Apache Libcloud, for dozens of clouds. Start reading at `provider`."""
