"""`python -m controllers.app`: the console script without installing it. See
`controllers/cli/main.py`."""

from controllers.cli.main import run

if __name__ == "__main__":
    run()
