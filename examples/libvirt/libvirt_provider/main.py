"""The cloud-controller-manager with libvirt as its default provider."""

import sys

from controllers.app import main


def run() -> None:
    """The console script `libvirt-controller-manager`. Ends the process with the manager's exit
    code."""
    sys.exit(main(default_provider="libvirt"))


if __name__ == "__main__":
    run()
