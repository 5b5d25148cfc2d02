"""`python -m cloudprovider`: see `cloudprovider/commands`."""

from cloudprovider.commands.cli import run

if __name__ == "__main__":
    run()
