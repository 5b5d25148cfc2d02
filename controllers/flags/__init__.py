"""The command line's flags: from argv to checked options (`parse.py`), in Go's syntax
(`syntax.py`).

Comes in: argv, and the options classes that declare the flags
(`controllers/registration/options.py`, each controller's own, a vendor's). Goes out: one object
with all options of the run, or every problem at once; and what /configz and /flagz show of it
(`effective.py`). Flags of the Go manager that have no meaning here are taken with a warning
(`ignored.py`). Nothing here does I/O.
"""
