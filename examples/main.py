"""The main.py that every vendor copies: put the name of your entry point in the place of "fake"."""

import sys

# First, as it reports a folder of yours that hides our package `controllers`.
import cloudprovider  # noqa: F401  # pyright: ignore[reportUnusedImport]
from controllers.app import main

if __name__ == "__main__":
    sys.exit(main(default_provider="fake"))
