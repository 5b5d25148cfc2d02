"""The main.py that every vendor copies: the cloud-controller-manager with your provider as its default.

Your package names its factory in the entry-point group "cloudprovider.providers"; put that name in place of "fake".
"""

import sys

from controllers.app import main

if __name__ == "__main__":
    sys.exit(main(default_provider="fake"))
