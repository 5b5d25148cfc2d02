"""How a provider is found and made: registry, entry points, and what to say when it fails."""
