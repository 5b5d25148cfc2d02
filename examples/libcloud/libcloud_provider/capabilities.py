"""DRIVERS.md: what each of libcloud's drivers gives here. `python -m
libcloud_provider.capabilities` prints it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import libcloud
from libcloud.compute.base import NodeDriver

from cloudprovider import InstanceState
from libcloud_provider.arguments import balancer_drivers, compute_drivers, driver_class, required_names
from libcloud_provider.balancers import BalancerProfile, balancer_profile_of
from libcloud_provider.profiles import Profile, profile_of

PROVED: Final = {
    "aliyun_ecs": "recorded answers",
    "azure_arm": "recorded answers",
    "cloudscale": "recorded answers",
    "cloudstack": "recorded answers; load balancers over a double",
    "digitalocean": "conformance over a double; recorded answers",
    "dummy": "unit tests",
    "ec2": "conformance on moto; recorded answers",
    "equinixmetal": "recorded answers",
    "gridscale": "recorded answers",
    "kamatera": "recorded answers",
    "linode": "a double; recorded answers",
    "maxihost": "recorded answers",
    "onapp": "recorded answers",
    "openstack": "OpenStack's services; conformance over a double",
    "ovh": "recorded answers",
    "rackspace": "conformance over a double, with load balancers",
    "scaleway": "recorded answers",
    "upcloud": "recorded answers",
    "vultr": "recorded answers",
}
"""How the tests run a driver. Nobody has run one against its cloud yet."""
RUN_DATE: Final = "2026-11-23"
RUN_AGAINST: Final = {
    "ec2": "moto's server 5.2.5",
    "openstack": "Keystone 30.0, Nova 34.0 with its fake hypervisor, Neutron 29.0, Placement 16.0, Glance 33.0",
}
"""What a manager ran against as a user runs it, on that day."""
PROVED_BALANCERS: Final = {
    "cloudstack": "a double", "elb": "moto", "rackspace": "conformance over a double",
}  # fmt: skip

_MEANING = {
    InstanceState.GONE: "gone",
    InstanceState.SHUTDOWN: "switched off",
    InstanceState.RUNNING: "still there",
    None: "unknown",
}

_HEAD = """\
# What each driver gives

This page is generated from the code and from libcloud {version}; do not edit it, run `python -m
libcloud_provider.capabilities > DRIVERS.md`.

libcloud has {all} drivers for machines. {usable} of them can be used here: all of these give
existence, shutdown and addresses. {types} give the type of a machine, {zones} its zone, {regions}
its region without being told. {questions} can ask about one machine, so that a node whose machine
was deleted is deleted too; with the others set `absent: gone` first. Of the drivers themselves
{locations} list locations and {sizes} list sizes.

libcloud has {balancers} drivers for load balancers. {usable_balancers} of them can be used here.

Run against the servers of others, from wheels alone, on {date}; nodes were initialised, and deleted
with their machines:

{servers}

**Run against the real cloud: none yet.** The column "proved by" says what the tests do instead: the
[conformance suite](../../docs/guides/conformance.md) over a simulator, or the answers that libcloud
recorded at these clouds. A driver with an empty cell works by the defaults alone: try it with `python
-m cloudprovider check` first.
"""

_MACHINES = """
## Machines

"TERMINATED" is libcloud's word for machines that are gone, but not for all drivers: where it may
also mean "switched off", the node is left alone.

"""

_BALANCERS = """
## Load balancers

No driver has source ranges, session affinity or `externalTrafficPolicy: Local`: a Service that asks
for these is refused, with an Event that says so.

"""


def page() -> str:
    """The page. Ends with a newline."""
    machines = [(name, place, profile_of(name)) for name, place in sorted(compute_drivers().items())]
    usable = [(name, place, profile) for name, place, profile in machines if not profile.refused]
    balancers = [(name, balancer_profile_of(name)) for name in sorted(balancer_drivers())]
    head = _HEAD.format(
        date=RUN_DATE,
        servers="\n".join(f"- `{driver}`: {server}" for driver, server in RUN_AGAINST.items()),
        version=libcloud.__version__,
        all=len(machines),
        usable=len(usable),
        types=sum(_knows_kind(name) for name, _, _ in usable),
        zones=sum(bool(profile.zone) for _, _, profile in usable),
        regions=sum(bool(profile.region or profile.region_of_zone) for _, _, profile in usable),
        questions=sum(profile.question is not None for _, _, profile in usable),
        locations=sum(_has(place, "list_locations") for _, place, _ in machines),
        sizes=sum(_has(place, "list_sizes") for _, place, _ in machines),
        balancers=len(balancers),
        usable_balancers=sum(not profile.refused for _, profile in balancers),
    )
    return "".join((head, _MACHINES, *_machine_rows(machines), _BALANCERS, *_balancer_rows(balancers)))


def _knows_kind(name: str) -> bool:
    """Whether somebody has read where this driver has the type."""
    return profile_of(name).kind not in ("", Profile().kind)


def _has(place: Any, method: str) -> bool:
    """Whether the driver, or one that it chooses by API version, has the method itself."""
    classes = [driver_class(place)]
    for one in classes:
        classes += one.__subclasses__()
    return any(getattr(one, method) is not getattr(NodeDriver, method) for one in classes)


def _machine_rows(machines: Sequence[tuple[str, Any, Profile]]) -> Iterator[str]:
    yield "| driver | needs | provider ID | type | zone | region | one machine | TERMINATED | proved by |\n"
    yield "|---|---|---|---|---|---|---|---|---|\n"
    for name, place, profile in machines:
        if profile.refused:
            continue
        needed = dict.fromkeys((*required_names(place), *profile.required))
        cells = (
            f"`{name}`",
            ", ".join(f"`{one}`" for one in needed),
            f"`{profile.provider_id.replace('{driver}', name)}`",
            "" if not profile.kind else "yes" if _knows_kind(name) else "if libcloud has it",
            "yes" if profile.zone else "",
            "yes" if profile.region or profile.region_of_zone else "as configured",
            "yes" if profile.question is not None else "",
            _MEANING[profile.terminated],
            PROVED.get(name, ""),
        )
        yield f"| {' | '.join(cells)} |\n"
    yield "\nCannot be used:\n\n"
    yield from (f"- `{name}`: {profile.refused}\n" for name, _, profile in machines if profile.refused)


def _balancer_rows(balancers: Sequence[tuple[str, BalancerProfile]]) -> Iterator[str]:
    yield "| driver | protocols | ports of a Service | members | else | proved by |\n|---|---|---|---|---|---|\n"
    for name, profile in balancers:
        if profile.refused:
            continue
        ports = "several" if profile.several else "one"
        cells = (
            f"`{name}`",
            ", ".join(profile.protocols),
            f"{ports}, equal to the node port" if profile.same_port else ports,
            "addresses" if profile.by_address else "machines",
            profile.limits,
            PROVED_BALANCERS.get(name, ""),
        )
        yield f"| {' | '.join(cells)} |\n"
    yield "\nCannot be used:\n\n"
    yield from (f"- `{name}`: {profile.refused}\n" for name, profile in balancers if profile.refused)


if __name__ == "__main__":
    print(page(), end="")
