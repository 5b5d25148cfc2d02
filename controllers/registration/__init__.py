"""What a controller hands in so that the manager can run it."""
