"""Labels and node affinity of PersistentVolumes: the controller (controller.py) and the webhook
(webhook.py)."""
