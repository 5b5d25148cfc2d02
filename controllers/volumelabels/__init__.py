"""Labels and node affinity of PersistentVolumes: the controller and the webhook."""
