"""Options declared once: from the declaration come the flag, the field's value, and the checks of
both."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from controllers.catalog import CATALOG
from controllers.flags.parse import option_classes, table
from controllers.options import BOOL, DURATION, INT, between, group, option, positive
from controllers.options.declare import fill, flags_of
from controllers.registration.entry import Context, Controller, ControllerEntry

DECLARED = [(kind, flag) for kind in option_classes(CATALOG) for flag in flags_of(kind)]
PLAIN = [(kind, flag) for kind, flag in DECLARED if flag.kind.metavar in ("INT", "NUMBER", "DURATION", "true|false")]


@attrs.frozen(kw_only=True)
class Inner:
    limit: int = option(3, INT, "limit", "toy-controller", "A limit.", check=between(1, 9))


@attrs.frozen(kw_only=True)
class Outer:
    period: float = option(1.0, DURATION, "period", "toy-controller", "A period.", check=positive)
    inner: Inner = group(Inner)
    strict: bool = option(False, BOOL, "strict", "toy-controller", "A switch.")
    depth: int = option(5, INT, check=positive)


def _never(_context: Context) -> Controller:
    raise AssertionError("nothing is built while flags are read")


def test_flags_come_in_the_order_of_the_fields_with_those_of_a_group_among_them() -> None:
    assert [flag.name for flag in flags_of(Outer)] == ["period", "limit", "strict"]


def test_values_of_flags_reach_their_fields_and_what_has_no_flag_keeps_its_default() -> None:
    assert fill(Outer, {"period": 2.0, "limit": 4, "strict": True}) == Outer(
        period=2.0, inner=Inner(limit=4), strict=True
    )


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"period": 0.0}, r"^period=0s \(--period\): must be greater than 0$"),
        ({"period": "1"}, r"^period='1' \(--period\): must be a finite number$"),
        ({"period": float("nan")}, r"^period=nan \(--period\): must be a finite number$"),
        ({"depth": 0}, r"^depth=0: must be greater than 0$"),
        ({"depth": 1.5}, r"^depth=1.5: must be a whole number$"),
        ({"depth": True}, r"^depth=True: must be a whole number$"),
    ],
)
def test_a_program_that_gives_nonsense_is_told_field_and_flag(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Outer(**given)


def test_every_flag_of_ours_changes_one_option() -> None:
    wrong = []
    for kind, flag in PLAIN:
        values = {row.name: row.default for row in flags_of(kind)}
        assert fill(kind, values) == kind()
        values[flag.name] = (
            not flag.default if isinstance(flag.default, bool) else type(flag.default)(flag.default * 2 or 1)
        )
        before, after = _flat(kind()), _flat(fill(kind, values))
        if sum(before[name] != after[name] for name in before) != 1:
            wrong.append(f"--{flag.name} of {kind.__name__}")
    assert wrong == []


def _flat(options: Any) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for field in attrs.fields(type(options)):
        value = getattr(options, field.name)
        flat |= _flat(value) if attrs.has(type(value)) else {field.name: value}
    return flat


def test_one_flag_may_set_options_of_several_classes_if_all_declare_it_alike() -> None:
    assert sum(flag.name == "cluster-name" for _, flag in DECLARED) == 2

    @attrs.frozen(kw_only=True)
    class Clash:
        cluster_name: str = option(7, INT, "cluster-name", "generic", "Something else.")

    entry = ControllerEntry(name="clash", construct=_never, options=(Clash,))
    with pytest.raises(ValueError, match="Clash declares --cluster-name, which is declared differently elsewhere"):
        table([*CATALOG, entry])
