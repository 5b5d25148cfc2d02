"""The controller that approves kubelets' serving certificates. Off by default."""
