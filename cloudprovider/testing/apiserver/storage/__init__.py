"""The versioned object store."""
