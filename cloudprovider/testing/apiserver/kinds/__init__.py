"""The resources, their types, and the rules of each kind."""
