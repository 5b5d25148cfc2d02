"""The command line: flags, log, signals, exit codes."""
