"""The main.py that every vendor copies: the cloud-controller-manager with your provider as its default.

Your package names its factory in the entry-point group "cloudprovider.providers"; put that name in place of "fake".
"""

import sys

# First, as it reports a folder of yours that hides our package `controllers`.
import cloudprovider  # noqa: F401  # pyright: ignore[reportUnusedImport]
from controllers.app import main

if __name__ == "__main__":
    sys.exit(main(default_provider="fake"))
