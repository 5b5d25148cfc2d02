"""The double and OpenStack's own services answer alike: the same statuses, the same keys, the same
types, for the same requests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from openstackdouble import Double, served
from openstackwalk import RECORDED, walk

from tests.lab.openstack.cloud import OpenStack

pytest_plugins = ["tests.lab.openstack.fixtures"]


@pytest.fixture
def cloud() -> Iterator[Double]:
    """An empty one."""
    with served() as double:
        yield double


def differences(recorded: Any, made: Any, where: str = "") -> Iterator[str]:
    """How the shapes differ. Nothing and an empty list have no shape: they agree with all."""
    if recorded is None or made is None:
        return
    if type(recorded) is not type(made):
        yield f"{where}: {type(recorded).__name__}, not {type(made).__name__}"
    elif isinstance(recorded, dict):
        if recorded.keys() != made.keys():
            yield f"{where}: lacks {recorded.keys() - made.keys()}, has {made.keys() - recorded.keys()}"
        for key in recorded.keys() & made.keys():
            yield from differences(recorded[key], made[key], f"{where}.{key}")
    elif isinstance(recorded, list) and recorded and made:
        yield from differences(recorded[0], made[0], f"{where}[0]")


def compared(recorded: dict[str, Any], seen: dict[str, Any]) -> list[str]:
    """All differences of two walks."""
    found = [f"{name}: not recorded" for name in seen.keys() ^ recorded.keys()]
    for name in seen.keys() & recorded.keys():
        was, now = recorded[name], seen[name]
        if was["status"] != now["status"]:
            found.append(f"{name}: {now['status']} {json.dumps(now['answer'])[:200]}, recorded {was['status']}")
            continue
        found += differences(was["answer"], now["answer"], name)
        for key in (was["answer"] or {}).keys() if name in COUNTED else ():
            if (one := len(was["answer"][key])) != (other := len(now["answer"][key])):
                found.append(f"{name}: {other} of {key}, recorded {one}")
    return found


COUNTED = (
    "servers", "page 1", "page 3", "server names", "networks", "external networks", "subnets", "ports of servers",
    "port by address", "ports' page 1", "rules", "groups by name", "groups by tag", "balancers by name",
    "balancers by tags", "balancers by any tag", "balancers by no tag", "listeners", "members", "monitors", "pools",
    "address of the port", "address by itself", "addresses by tag",
)  # fmt: skip
"""Listings whose lengths must agree too."""


def test_the_double_answers_as_recorded(cloud: Double) -> None:
    assert compared(json.loads(RECORDED.read_text()), walk(cloud).seen) == []
    assert cloud.octavia.things["loadbalancers"] == cloud.nova.servers == {}


def test_the_services_answer_as_recorded(openstack: OpenStack) -> None:
    seen = walk(openstack)
    if os.environ.get("RECORD"):  # for a new release of OpenStack, or a new step
        RECORDED.write_text(seen.recording())
    assert compared(json.loads(RECORDED.read_text()), seen.seen) == []
