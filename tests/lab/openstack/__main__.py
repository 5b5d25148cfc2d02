"""`make openstack`: OpenStack's own services, and all tests of the examples that ask for them.

Builds the environment where OPENSTACK_VENV names none, starts the services, runs the tests (those
with the fixture `openstack`), says what they asked and what they left, and ends all that it
started. Fails where a test has, or where something is left.

    make openstack OPENSTACK_ARGS="-k conformance"       # arguments of pytest
    make openstack OPENSTACK_ARGS="--keep FOLDER"        # no tests: until it is interrupted
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.openstack.cloud import OpenStack, running, unavailable
from tests.lab.openstack.environment import built

TESTS = ("examples/openstack/tests", "examples/libcloud/tests")


def main() -> int:
    """The program's exit code."""
    parser = argparse.ArgumentParser(prog="make openstack", description="OpenStack's own services for the tests.")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="only start the services, in this new folder")
    chosen, rest = parser.parse_known_args()
    for one in (signal.SIGINT, signal.SIGTERM):  # a shell that starts it with `&` has SIGINT ignored
        signal.signal(one, signal.default_int_handler)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

    given = os.environ.get("OPENSTACK_VENV", "")
    venv = Path(given).absolute() if given else built()
    if reason := unavailable(venv):
        print(reason, file=sys.stderr)
        return 2
    say(f"environment: {venv}")
    try:
        with _folder(chosen.keep) as folder, running(venv, folder, say) as cloud:
            if chosen.keep is not None:
                say(f"for tests: OPENSTACK_LAB={folder}")
                while True:
                    signal.pause()  # returns after any other signal
            return _tested(cloud, rest, say)
    except KeyboardInterrupt:
        return 130
    finally:
        say("all services have ended")


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    """A folder that is removed in the end, with all that the services have made."""
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="openstack-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    kept = kept.absolute()
    kept.mkdir(parents=True)
    try:
        yield kept
    finally:
        shutil.rmtree(kept, ignore_errors=True)


def _tested(cloud: OpenStack, arguments: list[str], say: Callable[[str], None]) -> int:
    since = time.time()
    command = [sys.executable, "-m", "pytest", "-m", "openstack", "-v", *TESTS, *arguments]
    done = subprocess.run(command, env={**os.environ, "OPENSTACK_LAB": str(cloud.folder)}, check=False)
    counts = cloud.counts(since)
    services: Counter[str] = Counter()
    for what, number in counts.items():
        services[what.partition(" ")[0]] += number
    say("requests: " + ", ".join(f"{name} {number}" for name, number in sorted(services.items())))
    left = cloud.left()
    say(f"left behind: {', '.join(left) or 'nothing'}")
    return done.returncode or bool(left)


if __name__ == "__main__":
    sys.exit(main())
