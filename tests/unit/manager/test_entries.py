"""A controller that can be built, and one that is off where the provider lacks what it needs."""

from __future__ import annotations

import pkgutil
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controllers.catalog import CATALOG
from controllers.registration.entry import Context, ControllerEntry, built, informers
from controllers.runtime.cache import NODES, SERVICES

NEEDY = [entry for entry in CATALOG if entry.lacking]


def context(**cloud: object) -> Context:
    return cast(Context, SimpleNamespace(cloud=SimpleNamespace(provider_name="bare", **cloud)))


@pytest.mark.parametrize("entry", NEEDY, ids=lambda entry: entry.name)
def test_what_the_provider_lacks_turns_it_off_with_a_warning(
    entry: ControllerEntry, caplog: pytest.LogCaptureFixture
) -> None:
    lacks = {"has_instances": False, "load_balancers": None, "ssh_keys": None, "pv_labeler": None}
    assert entry.start(context(**lacks)) is None
    although = "" if entry.on_by_default else ", although --controllers names it"
    assert caplog.messages == [f"{entry.name} is off{although}: provider bare {entry.lacking}"]


def test_what_the_provider_has_is_built() -> None:
    entry = ControllerEntry(
        name="x", construct=lambda given: cast(Any, given.cloud), needs=lambda cloud: cloud.has_instances
    )
    given = context(has_instances=True)
    made: object = entry.start(given)
    assert made is given.cloud


def test_names_are_resolved_when_they_are_used() -> None:
    class Build:
        def build(self, kind: type, options: type) -> tuple[type, type]:
            return kind, options

    made: object = built("collections:Counter", dict)(cast(Context, Build()))
    assert made == (pkgutil.resolve_name("collections:Counter"), dict)
    assert list(informers("NODES", "SERVICES")()) == [NODES, SERVICES]
