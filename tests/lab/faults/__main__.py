"""`make faults`: every fault over the real API server, and the page docs/reports/faults.md.

`make faults FAULTS="F3 F7"` runs these alone; their rows of the page are replaced, the others stay.
Ours come first, then the Go manager, each kind over an API server of its own.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.lab.envtest.build import AssetsMissing, assets, go_manager
from tests.lab.faults.catalogue import BY_ID, FAULTS
from tests.lab.faults.field import Fault
from tests.lab.faults.judge import Problem
from tests.lab.faults.mutants import MUTANTS
from tests.lab.faults.page import PAGE, keep
from tests.lab.faults.run import FAST, LONG, Form, Outcome, run
from tests.support.failover.stage import Ground, Kind, ground

COMMAND = "make faults"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    chosen = [one for one in FAULTS if not options.ids or one.id in options.ids]
    form = FAST if options.fast else LONG
    for number in (signal.SIGINT, signal.SIGTERM):  # where this runs in a shell's background, the first is ignored
        signal.signal(number, signal.default_int_handler)
    try:
        assets(build=True)
        if options.only != "ours" and not options.mutants:
            go_manager(build=True)
        return _mutants(options.ids, form) if options.mutants else _all(chosen, options, form)
    except (AssetsMissing, OSError, RuntimeError) as bad:
        print(f"{COMMAND}: {bad}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _all(chosen: Sequence[Fault], options: argparse.Namespace, form: Form) -> int:
    load, outcomes = os.getloadavg()[0], list[Outcome]()
    kinds: list[Kind] = [options.only] if options.only else ["ours", "go"]
    for kind in kinds:
        with ground(go=kind == "go") as where:
            for fault in chosen:
                if kind == "go" and fault.without_go:
                    continue
                outcomes.append(_one(fault, kind, where, form))
                if options.page and form is LONG:
                    keep(PAGE, outcomes, load=load)
    failed = [one for one in outcomes if one.problems and one.kind == "ours"]
    if failed:
        print(f"{COMMAND}: failed: {', '.join(one.fault.id for one in failed)}", file=sys.stderr)
    return 1 if failed else 0


def _one(fault: Fault, kind: Kind, where: Ground, form: Form, without: str = "") -> Outcome:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fault-", ignore_cleanup_errors=True) as folder:
        try:
            outcome = run(fault, kind, where, Path(folder), form, without=without)
        except Exception as problem:  # noqa: BLE001 - the verdict on this one; the others still count
            traceback.print_exc()
            outcome = Outcome(fault, kind, problems=[Problem("", f"{type(problem).__name__}: {problem}")])
    print(f"[{time.monotonic() - begun:5.0f} s] {outcome}", flush=True)
    return outcome


def _mutants(ids: Sequence[str], form: Form) -> int:
    """Each mutant must be found by its fault."""
    survived = []
    with ground() as where:
        for name, mutant in MUTANTS.items():
            if ids and mutant.fault not in ids:
                continue
            print(f"without {name}: {mutant.what}", flush=True)
            if not _one(BY_ID[mutant.fault], "ours", where, form, without=name).problems:
                survived.append(name)
    if survived:
        print(f"{COMMAND}: not noticed: {', '.join(survived)}", file=sys.stderr)
    return 1 if survived else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Every fault that the manager must survive.")
    # Checked by hand: argparse takes no empty list among choices.
    parser.add_argument("ids", nargs="*", type=_id, metavar="ID", help="only these, F0 to F36")
    parser.add_argument("--only", choices=("ours", "go"), help="only one of the two managers")
    parser.add_argument("--fast", action="store_true", help="the short form of the tests; leaves the page alone")
    parser.add_argument("--mutants", action="store_true", help="the faults that must find a guard taken out")
    parser.add_argument("--no-page", dest="page", action="store_false", help="leave the page alone")
    return parser


def _id(text: str) -> str:
    if text not in BY_ID:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(BY_ID)}")
    return text


if __name__ == "__main__":
    sys.exit(main())
