"""`make scale`: the figures of docs/reports/scale.md. `make scale SCALE="1000"`: this size.

Prints each phase as it ends. The page gets its tables when all sizes are done; with `--json FILE`
sizes that were measured earlier are taken from that file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.lab.bench.contenders import compile_sources
from tests.lab.bench.report import keep, lines_with_time
from tests.lab.bench.scale.life import Size, live
from tests.lab.bench.scale.page import PAGE, blocks, verdicts
from tests.lab.bench.trial import Unfinished
from tests.support.api import Refused

SIZES = (1000, 5000, 20000)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure these sizes; 1 where one did not get to its end."""
    given = _parser().parse_args(arguments)
    say = lines_with_time()
    compile_sources()
    found = json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    failed = False
    for size in map(Size, given.sizes):
        phases = found[str(size.nodes)] = {}
        try:
            for name, figures in live(size, say, given.flag):
                phases[name] = dict(figures)
                say(f"{size.name}: {name}: " + ", ".join(f"{key} {value:.2f}" for key, value in figures.items()))
                if given.json:
                    given.json.write_text(json.dumps(found, indent=1))
        except (Unfinished, Refused, RuntimeError) as error:
            failed = True
            say(f"{size.name}: {error}")
    for name, text in blocks(found).items():
        print(f"\n{text}", flush=True)
        if not given.no_docs:
            keep(PAGE, name, text, command="make scale")
    print("", *verdicts(found), sep="\n", flush=True)
    return int(failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench.scale", description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES, metavar="NODES", help="default: 1000 5000 20000")
    parser.add_argument("--flag", action="append", default=[], metavar="--NAME=VALUE", help="a flag for the manager")
    parser.add_argument("--json", type=Path, help="keep the figures in this file, and take other sizes from it")
    parser.add_argument("--no-docs", action="store_true", help="leave the page alone")
    return parser


if __name__ == "__main__":
    sys.exit(main())
