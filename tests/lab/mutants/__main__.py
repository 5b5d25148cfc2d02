"""`make mutants`: change one thing at a time in the modules that decide, and see whether their unit
tests notice.

Works on copies of the tree, one for each worker; nothing of yours is touched. A mutant that makes
the tests fail or hang is killed; the others are printed. Some of those are equivalent: no test
could tell them from the original.

Why not cosmic-ray or mutmut: cosmic-ray removes no statement and no argument, which is what tests
of a reducer miss, and runs one mutant at a time in the working tree; mutmut wraps every function,
and with that our tables of functions fail their tests before anything is changed.

    python -m tests.lab.mutants [--seconds 1800] [--sample 0] [--seed 0] [--jobs 2] [NAME ...]
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.lab.mutants.operators import Mutant, mutants
from tests.lab.mutants.targets import TARGETS

ROOT = Path(__file__).parents[3]
COPIED = ("cloudprovider", "controllers", "examples", "tests", "pyproject.toml")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description="Which changes of the code do the tests miss?")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--seconds", type=float, default=1800.0, help="stop after this long (default 1800)")
    parser.add_argument("--sample", type=int, default=0, help="so many mutants of each module; 0: all")
    parser.add_argument("--seed", type=int, default=0, help="of the sample and the order")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in TARGETS]
    if unknown:
        parser.error(f"no such module: {', '.join(unknown)}; known: {', '.join(TARGETS)}")
    end = time.monotonic() + given.seconds
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(given.jobs):
            copies.put(_copy(Path(folder) / str(number)))
        for name in given.names or TARGETS:
            if not _judge(name, copies, given, end):
                return 1
    return 0


def _copy(folder: Path) -> Path:
    for part in COPIED:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, folder / part)
    return folder


def _judge(name: str, copies: queue.SimpleQueue[Path], given: argparse.Namespace, end: float) -> bool:
    """Print a module's figure and its survivors. False where its tests fail without any change."""
    path, tests = TARGETS[name]
    source = (ROOT / path).read_text()
    started = time.monotonic()
    copy = copies.get()
    if not _passes(copy, tests, given.seconds):
        print(f"{name}: its tests fail as they are")
        return False
    copies.put(copy)
    limit = 30.0 + 5 * (time.monotonic() - started)
    every = mutants(source)
    chosen = list(every)
    random.Random(given.seed).shuffle(chosen)
    chosen = chosen[: given.sample or None]

    def survives(mutant: Mutant) -> bool | None:
        """None where the time was up."""
        if time.monotonic() > end:
            return None
        copy = copies.get()
        try:
            (copy / path).write_text(mutant.source)
            return _passes(copy, tests, limit)
        finally:
            (copy / path).write_text(source)
            copies.put(copy)

    with ThreadPoolExecutor(given.jobs) as pool:
        verdicts = list(zip(chosen, pool.map(survives, chosen), strict=True))
    tried = [(mutant, verdict) for mutant, verdict in verdicts if verdict is not None]
    survivors = sorted((mutant for mutant, verdict in tried if verdict), key=lambda mutant: mutant.line)
    killed = len(tried) - len(survivors)
    print(f"{name}: {killed} of {len(tried)} killed; {len(every)} mutants in all, {len(tests)} test paths", flush=True)
    for mutant in survivors:
        print(f"  {path}:{mutant.line}: {mutant.what}", flush=True)
    return True


def _passes(copy: Path, tests: tuple[str, ...], limit: float) -> bool:
    """Whether the tests pass in this copy within the limit."""
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
