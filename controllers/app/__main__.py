"""`python -m controllers.app`: the console script without installing it. See cli.py."""

from controllers.app.cli import run

if __name__ == "__main__":
    run()
