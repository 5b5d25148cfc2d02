"""localcloud: the provider for a cloud on one Linux machine, known by its HTTP API only."""
