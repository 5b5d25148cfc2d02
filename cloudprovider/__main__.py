"""`python -m cloudprovider`: see `cloudprovider/commands`."""

import sys

from cloudprovider.internal.systems import unsupported

if __name__ == "__main__":
    if reason := unsupported():
        sys.exit(reason)
    from cloudprovider.commands.cli import run

    run()
