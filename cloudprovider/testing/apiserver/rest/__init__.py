"""What a request means and what it leads to: routes, reads, writes, watches, reviews."""
