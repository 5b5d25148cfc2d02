"""`make bench`: the figures of docs/reports/benchmarks.md, measured over the real API server.

`make bench BENCH_ARGS="services routes"` measures these rows alone. Contenders alternate; what is
slow by its nature is measured once. Every measurement is bounded by a timeout, and its result is
printed as it comes. The page under docs/ gets a row's table when the row is over, unless something
was left out of it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tests.lab.bench.contenders import ROOT, compile_sources
from tests.lab.bench.report import as_json, block, keep, lines_with_time, verdicts
from tests.lab.bench.scenario import Outcome, Scenario, run
from tests.lab.bench.scenarios.footprint import footprint
from tests.lab.bench.scenarios.initialise import initialise, initialise5000
from tests.lab.bench.scenarios.joining import joining
from tests.lab.bench.scenarios.leaving import leaving
from tests.lab.bench.scenarios.routes import routes
from tests.lab.bench.scenarios.services import services
from tests.lab.bench.scenarios.start import start
from tests.lab.bench.scenarios.sweep import sweep
from tests.lab.bench.scenarios.takeover import takeover
from tests.lab.envtest.build import bench_program

SCENARIOS: dict[str, Callable[[float], Scenario]] = {
    "initialise": initialise,
    "initialise5000": initialise5000,
    "footprint": footprint,
    "services": services,
    "routes": routes,
    "sweep": sweep,
    "leaving": leaving,
    "joining": joining,
    "start": start,
    "takeover": takeover,
}
PAGE = ROOT / "docs" / "reports" / "benchmarks.md"


def main(argv: list[str] | None = None) -> int:
    """Measure what the command line names; 1 when a contender did not finish."""
    given = _arguments(argv)
    scenarios = [SCENARIOS[name](given.scale) for name in given.scenarios or SCENARIOS]
    if given.list:
        for scenario in scenarios:
            print(f"{scenario.name:14} {scenario.title}: {', '.join(one.name for one in scenario.contenders)}")
        return 0
    tell = lines_with_time()
    for program in ("limit", "goccm"):
        bench_program(program, build=True)
    compile_sources()
    whole = given.scale == 1 and not given.only and not given.skip
    found: dict[str, list[Outcome]] = {}
    for scenario in scenarios:
        contenders = [
            one
            for one in scenario.contenders
            if given.only in one.name and not any(part in one.name for part in given.skip)
        ]
        if not contenders:
            continue
        load = os.getloadavg()[0]
        found[scenario.name] = run(scenario, contenders, given.repetitions, tell)
        text = block(scenario, found[scenario.name], load)
        print(f"\n{text}\n", *verdicts(scenario, found[scenario.name]), "", sep="\n", flush=True)
        if given.docs and whole:
            keep(given.docs, scenario.name, text)
        if given.json:
            given.json.write_text(json.dumps(as_json(found), indent=1))
    return int(any(one.failure for outcomes in found.values() for one in outcomes))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="ROW", help=f"of {', '.join(SCENARIOS)}; default: all")
    parser.add_argument("--list", action="store_true", help="show the rows with their contenders, and measure nothing")
    parser.add_argument("--repetitions", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--only", default="", metavar="TEXT", help="only contenders whose names contain this")
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        metavar="TEXT",
        help="no contenders whose names contain this",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the nodes and Services, to try it out")
    parser.add_argument("--docs", type=Path, default=PAGE, help="the page that keeps the tables")
    parser.add_argument("--no-docs", dest="docs", action="store_const", const=None, help="only print them")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args(argv)
    for name in given.scenarios:
        if name not in SCENARIOS:
            parser.error(f"there is no row {name!r}; known: {', '.join(SCENARIOS)}")
    return given


if __name__ == "__main__":
    sys.exit(main())
