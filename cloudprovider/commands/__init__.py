"""The command line of the contract, `python -m cloudprovider`: what a vendor runs without a
cluster.

`cli.py` reads the arguments and prints; a module for each command returns what it found:
`providers.py` (what is installed), `check.py` with `questions.py` and `forecast.py` (one provider,
from its entry point to its cloud's answers, and what a Node would get), `new.py` (a new package,
from the files in `template/`), `cluster.py` (an API server for a program beside it). Nothing here
is imported by the rest of `cloudprovider`.
"""
