"""The cloud-controller-manager with this provider as its default; everything else is flags."""

import sys

from controllers.app import main


def run() -> None:
    """The console script `samplecloud-controller-manager`. Ends the process with the manager's exit code."""
    sys.exit(main(default_provider="samplecloud"))


if __name__ == "__main__":
    run()
