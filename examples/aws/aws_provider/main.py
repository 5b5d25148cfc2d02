"""The cloud-controller-manager with AWS as its default provider."""

import sys

from controllers.app import main


def run() -> None:
    """The console script `aws-controller-manager`. Ends the process with the manager's exit
    code."""
    sys.exit(main(default_provider="aws"))


if __name__ == "__main__":
    run()
