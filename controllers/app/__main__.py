"""`python -m controllers.app`: the uninstalled console script. See `controllers/cli/main.py`."""

from controllers.cli.main import run

if __name__ == "__main__":
    run()
