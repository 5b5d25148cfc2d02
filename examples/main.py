"""The main.py that every vendor copies: the cloud-controller-manager with your provider as its default.

Your package names its factory in the entry-point group "cloudprovider.providers"; put that name in place of "fake".
"""

import sys

import cloudprovider as _cloudprovider  # noqa: F401  first: it reports a folder of yours that hides our package `controllers`
from controllers.app import main

if __name__ == "__main__":
    sys.exit(main(default_provider="fake"))
