"""Programs that measure and prove; not collected as tests. README.md says which."""
