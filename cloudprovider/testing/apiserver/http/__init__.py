"""The HTTP side: the listening socket, its connections, and the faults that are injected there."""
