"""`make run`: shows the real manager at work, in a story of a minute at most.

An embedded API server is the cluster, a fake cloud that this process serves is the cloud, and
managers run as processes of their own. With `--kubeconfig` there is no story: one manager
initialises the nodes of your cluster that wait for that.

Exit codes: 0 everything happened as told, 1 something went wrong (and what), 130 after Ctrl-C
before the end.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from livedemo.screen import Failed
from livedemo.story import Story
from livedemo.visit import Visit

from controllers.runtime.api import ApiError


@contextmanager
def _terminated_as_interrupted() -> Generator[None]:
    """SIGTERM ends the demo as Ctrl-C does, so that the managers are stopped in any case."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kubeconfig", metavar="PATH", help="initialise the nodes of this cluster; no story")
    given = parser.parse_args(argv)
    logging.getLogger("controllers").setLevel(logging.CRITICAL)  # the demo's own informer; the managers log themselves
    with tempfile.TemporaryDirectory(prefix="cloud-demo-") as directory, _terminated_as_interrupted():
        try:
            if given.kubeconfig:
                Visit(given.kubeconfig, Path(directory)).run()
            else:
                with Story(Path(directory)) as story:
                    story.run()
        except (Failed, ApiError) as failure:
            print(f"\nThe demo failed: {failure}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nInterrupted; every manager was stopped.", file=sys.stderr)
            return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
