"""The cloud-controller-manager with OpenStack as its default provider."""

import sys

from controllers.app import main


def run() -> None:
    """The console script `openstack-controller-manager`. Ends the process with the manager's exit
    code."""
    sys.exit(main(default_provider="openstack"))


if __name__ == "__main__":
    run()
