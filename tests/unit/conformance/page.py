"""docs/reference/scenarios.md: every scenario, what it needs, and a broken cloud that fails it.
Pure.

Made from the registry of scenarios and the mutants of the tests, by `make generate`.
"""

from __future__ import annotations

from typing import Any

from cloudprovider.testing.conformance import SCENARIOS, Feature, Lab, Scenario
from cloudprovider.testing.conformance.features import feature_names
from cloudprovider.testing.conformance.registry import FAMILIES
from tests.integration.conformance import mutants as endtoend
from tests.unit.conformance.mutants import badly, balancers, nodes, others, podcidrs, targets
from tests.unit.conformance.mutants.bench import MUTANTS, Mutant

__all__ = [
    "badly",
    "balancers",
    "nodes",
    "others",
    "page",
    "podcidrs",
    "targets",
]  # the modules are imported for the mutants that they register

INTRODUCTION = """# Conformance scenarios

This page is generated from the code; do not edit it, run `make generate`.
[Proving a provider](../guides/conformance.md) says how to run them.

Numbers never change their meaning. "Needs" names the features that must be declared and the hooks that the lab must
have. The last column is a mistake that only this scenario finds: our tests run a fake cloud with that mistake, and that
scenario fails alone.
"""


def page() -> str:
    """The whole page."""
    wrong = {mutant.scenario: _wrong(mutant) for mutant in MUTANTS}
    wrong |= {id: _sentence(part) for id, part in endtoend.MUTANTS.items()}
    lines = [INTRODUCTION]
    for letter, family in FAMILIES.items():
        found = sorted((one for one in SCENARIOS.values() if one.id[0] == letter), key=lambda one: one.order)
        lines += [
            f"## {letter}: {family}",
            "",
            "| | What is proved | Needs | A mistake that it finds |",
            "|---|---|---|---|",
        ]
        lines += [f"| {one.id} | {one.title} | {_needs(one)} | {wrong.get(one.id, '')} |" for one in found]
        lines.append("")
    lines += ["## Features", "", "| | what it means |", "|---|---|"]
    lines += [f"| `{name.upper()}` | {FEATURES[name]} |" for name in feature_names(~Feature.NONE)]
    lines += ["", "## Hooks of the lab", "", "| | what it does |", "|---|---|"]
    lines += [f"| `{hook}` | {_sentence(getattr(Lab, hook))} |" for hook in _hooks()]
    return "\n".join([*lines, ""])


FEATURES = {
    "instances_v2": "`instances_v2()`: one node a call",
    "instances_batch": "`instances_batch()`: many nodes a call",
    "instances": "`instances()`: the older form, by name and by provider ID",
    "ssh_keys": "the class of `InstancesV2` or `InstancesBatch` is an `SSHKeys` too",
    "zones": "`zones()`, beside the older form",
    "load_balancer": "`load_balancer()`",
    "owned_load_balancers": "the class of the load balancers is an `OwnedLoadBalancers` too",
    "source_ranges": "`spec.loadBalancerSourceRanges` limits who may connect",
    "udp": "load balancers have ports over UDP, also one port number over TCP and UDP",
    "health_checks": "with `externalTrafficPolicy: Local` the health check asks the Service's own node port",
    "kept_load_balancers": "a Service can ask that its load balancer stays when it is deleted (`LoadBalancerKept`)",
    "routes": "`routes()`",
    "pv_labeler": "`pv_labeler()`",
    "clusters": "`clusters()`",
    "local_instance": "`local_instance()`: the metadata service of the machine that the program runs on",
    "pod_cidrs": "`pod_cidrs()`",
    "owned_resources": "`owned_resources()`: what `teardown` deletes besides load balancers and routes",
}


def _wrong(mutant: Mutant) -> str:
    without = f" (On a lab without {', '.join(f'`{hook}`' for hook in mutant.without)}.)" if mutant.without else ""
    return mutant.wrong + without


def _hooks() -> list[str]:
    return [name for name, member in vars(Lab).items() if callable(member) and not name.startswith("_")]


def _needs(one: Scenario) -> str:
    return ", ".join([*(name.upper() for name in feature_names(one.features)), *(f"`{hook}`" for hook in one.hooks)])


def _sentence(thing: Any) -> str:
    """The first paragraph of a docstring, as one line."""
    return " ".join((thing.__doc__ or "").partition("\n\n")[0].split())
