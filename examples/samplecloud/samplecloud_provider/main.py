"""The cloud-controller-manager of this vendor: its provider, a controller, flags and a default of
its own."""

import sys

from controllers.app import CATALOG, main
from samplecloud_provider import pools
from samplecloud_provider.options import SampleCloudOptions


def run() -> None:
    """The console script `samplecloud-controller-manager`. Ends the process with the manager's exit
    code."""
    sys.exit(
        main(
            default_provider="samplecloud",
            catalog=(*CATALOG, pools.ENTRY),
            flags=(SampleCloudOptions,),
            defaults={"node-monitor-period": "10s"},  # as it would be typed
        )
    )


if __name__ == "__main__":
    run()
