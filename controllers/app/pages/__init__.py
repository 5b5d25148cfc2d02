"""Documentation that is written from declarations: the reference of flags and permissions, and the table of Go's flags.

Comes in: the catalog and the options classes. Goes out: Markdown, by `make generate`. Nothing here runs in the manager.
"""
