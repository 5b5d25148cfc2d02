"""The process as the operating system sees it: log lines on standard error, and how it ends."""
