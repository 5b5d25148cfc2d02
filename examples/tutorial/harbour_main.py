"""The cloud-controller-manager of harbour: registered by hand, as the tutorial's provider is not
installed."""

import sys

from harbour_provider import new_provider

from cloudprovider import register_cloud_provider
from controllers.app import main

if __name__ == "__main__":
    register_cloud_provider("harbour", new_provider)
    sys.exit(main(default_provider="harbour", defaults={"controllers": "service-lb-controller"}))
