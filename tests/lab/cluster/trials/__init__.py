"""What the product does in its pod, on a whole cluster of real nodes: the trials of `make
trials`."""
