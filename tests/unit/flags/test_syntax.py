"""Go's flag syntax: every way of writing a flag, and every way of writing it wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider.kinds import show_duration
from controllers.flags.syntax import Parsed, parse
from controllers.options import BOOL, DURATION, FLOAT, INT, INTEGERS, IP, LIST, STRING, SWITCHES, Kind
from controllers.options.declare import Flag
from controllers.options.kinds import display

TABLE: list[Flag[Any]] = [
    Flag("cloud-provider", STRING, "", "generic", "text"),
    Flag("leader-elect", BOOL, True, "generic", "text"),
    Flag("old", BOOL, False, "generic", "text", deprecated="use the new one"),
    Flag("controllers", LIST, ("*",), "generic", "text"),
    Flag("syncs", INT, 1, "node", "text", check=lambda n: None if n > 0 else "must be 1 or more"),
    Flag("qps", FLOAT, 0.0, "generic", "text"),
    Flag("every", DURATION, 300.0, "misc", "text"),
    Flag("v", INT, 0, "global", "text", shorthand="v"),
    Flag("help", BOOL, False, "global", "text", shorthand="h"),
    Flag("gates", SWITCHES, {}, "generic", "text"),
    Flag("curves", INTEGERS, (), "generic", "text"),
    Flag("address", IP, "0.0.0.0", "generic", "text"),
    Flag("http2", BOOL, False, "generic", "text", note=lambda on: "has no effect" if on else None),
]


def read(*argv: str) -> Parsed:
    return parse(TABLE, argv)


def well(*argv: str) -> dict[str, Any]:
    parsed = read(*argv)
    assert parsed.problems == ()
    return {name: parsed.values[name] for name in parsed.given}


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--cloud-provider=fake"], {"cloud-provider": "fake"}),
        (["--cloud-provider", "fake"], {"cloud-provider": "fake"}),
        (["--cloud_provider=fake"], {"cloud-provider": "fake"}),
        (["--cloud_provider", "a_b=c"], {"cloud-provider": "a_b=c"}),
        (["--cloud-provider="], {"cloud-provider": ""}),
        (["--cloud-provider", ""], {"cloud-provider": ""}),
        (["--cloud-provider=--x"], {"cloud-provider": "--x"}),
        (["--cloud-provider=a", "--cloud-provider=b"], {"cloud-provider": "b"}),
        (["--leader-elect"], {"leader-elect": True}),
        (["--leader-elect=false"], {"leader-elect": False}),
        (["--leader-elect=F", "--qps", "-1.5"], {"leader-elect": False, "qps": -1.5}),
        (["--controllers=*,-route"], {"controllers": ("*", "-route")}),
        (["--controllers", "-route"], {"controllers": ("-route",)}),
        (["--controllers=*", "--controllers=-a,-b"], {"controllers": ("*", "-a", "-b")}),
        (["--controllers=*, -a"], {"controllers": ("*", "-a")}),
        (["--syncs=0x10"], {"syncs": 16}),
        (["--every=1m30s"], {"every": 90.0}),
        (["--every", "1.5m"], {"every": 90.0}),
        (["--every=0"], {"every": 0.0}),
        (["--every=-10ms"], {"every": -0.01}),
        (["--every=1h2m3.5s"], {"every": 3723.5}),
        (["-v2"], {"v": 2}),
        (["-v=2"], {"v": 2}),
        (["-v", "2"], {"v": 2}),
        (["--v=2"], {"v": 2}),
        (["--gates=A=true,B=false", "--gates", "B=true, C=f"], {"gates": {"A": True, "B": True, "C": False}}),
        (["--gates="], {"gates": {}}),
        (["--curves=29,0x17", "--curves=1"], {"curves": (29, 23, 1)}),
        (["--address=::1"], {"address": "::1"}),
        (["-hv", "3"], {"help": True, "v": 3}),
        (["-h"], {"help": True}),
        ([""], {}),
        (["--", ""], {}),
        ([], {}),
    ],
)
def test_every_way_of_writing_a_flag(argv: list[str], expected: dict[str, Any]) -> None:
    assert well(*argv) == expected


def test_what_the_operator_is_to_know_is_told_once_about_the_value_that_counts() -> None:
    assert read("--http2", "--http2=true").warnings == ("--http2: has no effect",)
    assert read("--http2", "--http2=false").warnings == ()
    assert read("--old", "--old=true").warnings == ("--old is deprecated: use the new one",)
    assert read().warnings == ()


def test_flags_not_given_keep_their_defaults() -> None:
    values = read("--qps=5").values
    assert (values["leader-elect"], values["controllers"], values["every"]) == (True, ("*",), 300.0)


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--leader-elect=maybe"], "--leader-elect=maybe: must be true or false"),
        (["--leader-elect", "false"], "false: this program takes flags only, no other arguments"),
        (["--syncs=0"], "--syncs=0: must be 1 or more"),
        (["--syncs", "0"], "--syncs=0: must be 1 or more"),
        (["--syncs="], "--syncs=: must be a whole number"),
        (["--syncs=ten"], "--syncs=ten: must be a whole number"),
        (["--syncs= 1"], "--syncs= 1: must be a whole number"),
        (["--syncs=3000000000"], "--syncs=3000000000: must fit in 32 bits"),
        (["--qps=nan"], "--qps=nan: must be a finite number"),
        (["--qps=1e999"], "--qps=1e999: must be a finite number"),
        (["--qps=x"], "--qps=x: must be a number"),
        (["--every=5"], "--every=5: must be a duration such as 300ms, 10s or 1m30s"),
        (["--every=1m,30s"], "--every=1m,30s: must be a duration such as 300ms, 10s or 1m30s"),
        (["--every=1d"], "--every=1d: must be a duration such as 300ms, 10s or 1m30s"),
        (["--every=99999999999h"], "--every=99999999999h: must be less than 292 years"),
        (["--every"], "--every: needs a value: --every=DURATION"),
        (["--controllers"], "--controllers: needs a value: --controllers=NAME,..."),
        (["--cloud-provder=x"], "--cloud-provder: there is no such flag; did you mean --cloud-provider?"),
        (["--nonsense", "value"], "--nonsense: there is no such flag"),
        (["--=x"], "--: there is no such flag"),
        (["-x"], "-x: there is no flag -x"),
        (["-="], "-=: not a flag"),
        (["-cloud=x"], "-cloud=x: there is no flag -c; flags of more than one letter begin with two dashes: --cloud=x"),
        (["--", "extra"], "extra: this program takes flags only, no other arguments"),
        (['--controllers="a'], '--controllers="a: must be a comma-separated list'),
    ],
)
def test_each_mistake_has_its_own_sentence(argv: list[str], problem: str) -> None:
    assert read(*argv).problems == (problem,)


@pytest.mark.row("M4")
def test_all_problems_are_found_in_one_go_and_in_order() -> None:
    parsed = read("--syncs=0", "--nope", "1", "--every", "--qps=x", "word", "--leader-elect=2", "-v")
    assert [line.split(":")[0] for line in parsed.problems] == [
        "--syncs=0",
        "--nope",
        "--every",
        "--qps=x",
        "word",
        "--leader-elect=2",
        "-v",
    ]
    assert parsed.failed == {"syncs", "every", "qps", "leader-elect", "v"}


def test_a_forgotten_value_does_not_swallow_the_next_flag() -> None:
    parsed = read("--cloud-provider", "--leader-elect=false")
    assert parsed.problems == (
        "--cloud-provider: needs a value (--leader-elect reads as the next flag): --cloud-provider=TEXT",
    )
    assert parsed.values["leader-elect"] is False


def test_what_is_shown_of_a_value_is_one_short_line_without_credentials() -> None:
    assert display("https://user:pw@host/x") == "https://...@host/x"
    assert display("a\nb\x1b") == "a\\x0ab\\x1b"
    assert len(display("x" * 500)) == 80
    [problem] = read("--syncs=https://user:pw@host").problems
    assert "pw" not in problem


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (300, "5m0s"),
        (90, "1m30s"),
        (3600, "1h0m0s"),
        (0.5, "500ms"),
        (1.5, "1.5s"),
        (-90, "-1m30s"),
        (43200, "12h0m0s"),
    ],
)
def test_durations_are_shown_as_go_shows_them(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text


@given(st.integers(min_value=-(10**12), max_value=10**12))
def test_a_shown_duration_parses_back(microseconds: int) -> None:
    seconds = microseconds / 1e6
    assert DURATION.parse(DURATION.show(seconds)) == pytest.approx(seconds, abs=1e-6)


@given(st.sampled_from([STRING, INT, FLOAT, BOOL, DURATION, LIST]), st.text(max_size=20))
def test_no_text_makes_a_value_parser_fail_otherwise_than_by_a_sentence(kind: Kind[Any], raw: str) -> None:
    try:
        value = kind.parse(raw)
    except ValueError as error:
        complaint = str(error)
    else:
        complaint = "" if kind is LIST or kind.parse(kind.show(value)) == value else "did not parse back"
    assert complaint == "" or complaint.startswith("must ")


@given(st.lists(st.text(alphabet="-=-vhx \"',\n12cloudprovider_", max_size=16), max_size=8))
def test_no_argv_makes_the_parser_fail(argv: list[str]) -> None:
    parsed = read(*argv)
    assert set(parsed.values) == {flag.name for flag in TABLE}
    assert all("\n" not in line for line in parsed.problems)


@given(st.lists(st.tuples(st.sampled_from(["syncs", "v"]), st.integers(1, 9), st.booleans()), max_size=6))
def test_joined_and_separate_values_mean_the_same(rows: list[tuple[str, int, bool]]) -> None:
    argv: list[str] = []
    for name, value, joined in rows:
        argv += [f"--{name}={value}"] if joined else [f"--{name}", str(value)]
    expected = {name: value for name, value, _ in rows}
    assert well(*argv) == expected
