"""What a provider and its answers must be: asked by the gateway, the commands and conformance."""
