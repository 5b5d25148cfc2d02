"""`python -m tests.lab.openstack --keep FOLDER`: starts the services and waits for the end."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import time
from pathlib import Path

from tests.lab.openstack.cloud import running, unavailable


def main() -> None:
    """Ends all that it started, by SIGINT or SIGTERM too."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.openstack", description=__doc__)
    parser.add_argument("--keep", metavar="FOLDER", type=Path, required=True)
    chosen = parser.parse_args()
    venv = Path(os.environ["OPENSTACK_VENV"]).absolute()
    if reason := unavailable(venv):
        raise SystemExit(reason)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    folder: Path = chosen.keep.absolute()
    folder.mkdir(parents=True)
    began = time.monotonic()
    try:
        with running(venv, folder, lambda line: print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)):
            print(f"OPENSTACK_LAB={folder}", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
