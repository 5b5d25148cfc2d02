"""The flags of node IPAM: all that is wrong with them at once, in Go's meaning, and only where the
controller runs."""

from __future__ import annotations

import re

import pytest

from controllers.catalog import CATALOG
from controllers.flags.parse import parse
from controllers.nodeipam.registration import NodeIPAMOptions
from controllers.registration.entry import enabled

ON = ("--cloud-provider=fake", "--controllers=*,nodeipam", "--allocate-node-cidrs")


def problems_of(argv: list[str]) -> list[str]:
    outcome = parse(argv, CATALOG)
    chosen = enabled(outcome.values["controllers"], CATALOG)
    return [*outcome.problems, *(line for entry in chosen for line in entry.problems(outcome.values))]


@pytest.mark.parametrize(
    ("flags", "wrong"),
    [
        ((), ["--cluster-cidr: must be given"]),
        (("--cluster-cidr=10.244.0.0/16",), []),
        (("--cluster-cidr=10.244.0.0/16,fd00::/48", "--service-cluster-ip-range=10.0.0.0/16,fd01::/108"), []),
        (("--cluster-cidr=fd00::/47",), ["at most 16 bits"]),
        (("--cluster-cidr=10.0.0.0/8", "--node-cidr-mask-size=28"), []),
        (("--cluster-cidr=10.244.0.0/25",), ["is smaller than a node's pod CIDR"]),
        (("--cluster-cidr=10.244.0.0/25", "--node-cidr-mask-size=26"), []),
        (("--cluster-cidr=10.244.0.0/16", "--node-cidr-mask-size=8"), ["must be between 16 and 32"]),
        (("--cluster-cidr=10.244.0.0/16", "--node-cidr-mask-size-ipv6=64"), ["ipv6: needs a cluster CIDR"]),
        (("--cluster-cidr=10.244.0.0/16,fd00::/48", "--node-cidr-mask-size=24"), ["one flag for each family"]),
        (
            ("--cluster-cidr=10.244.0.0/16", "--node-cidr-mask-size=26", "--node-cidr-mask-size-ipv4=26"),
            ["one flag for each family"],
        ),
        (
            ("--cluster-cidr=10.244.0.0/25,fd00::/40", "--service-cluster-ip-range=10.0.0.0/8"),
            ["10.244.0.0/25: is smaller", "no range of 10.244.0.0/25 is left", "fd00::/40: .* at most 16"],
        ),
        (("--cluster-cidr=10.244.0.0/16", "--cidr-allocator-type=IPAMFromCloud"), ["RangeAllocator or CloudAllocator"]),
        (("--cidr-allocator-type=CloudAllocator",), []),
        (("--cluster-cidr=10.0.0.0/16,10.8.0.0/16,fd00::/48,10.9.0.0/24,fd01::/48",), []),
        (("--cluster-cidr=10.0.0.0/16,10.8.0.0/20", "--node-cidr-mask-size=26"), []),
        (
            ("--cluster-cidr=10.0.0.0/16,10.8.0.0/25,10.9.0.0/26", "--node-cidr-mask-size-ipv4=24"),
            ["does not fit into the cluster CIDR 10.8.0.0/25", "does not fit into the cluster CIDR 10.9.0.0/26"],
        ),
        (
            ("--cluster-cidr=10.0.0.0/16,10.8.0.0/25,fd00::/40,fd01::/47",),
            ["10.8.0.0/25: is smaller", "fd00::/40: .* or --node-cidr-mask-size-ipv6=56$", "fd01::/47: .* at most 16"],
        ),
        (("--cluster-cidr=fd00::/40,fd01::/60",), ["Fix: a smaller cluster CIDR$"]),
        (("--cluster-cidr=10.0.0.0/16,10.8.0.0/16", "--service-cluster-ip-range=10.8.0.0/15"), ["10.8.0.0/16 is left"]),
    ],
)
def test_problems_of_the_flags_together(flags: tuple[str, ...], wrong: list[str]) -> None:
    problems = problems_of([*ON, *flags])
    assert len(problems) == len(wrong), problems
    for problem, pattern in zip(problems, wrong, strict=True):
        assert re.search(pattern, problem), problem
        assert problem.startswith("--")


@pytest.mark.parametrize("controllers", ["*", "*,-nodeipam"])
def test_who_does_not_ask_for_it_gets_neither_it_nor_its_problems(controllers: str) -> None:
    """A manager that takes the place of Go's with --allocate-node-cidrs is no second allocator."""
    flags = ["--cloud-provider=fake", f"--controllers={controllers}", "--allocate-node-cidrs"]
    argv = [*flags, "--cluster-cidr=fd00::/8", "--cidr-allocator-type=IPAMFromCloud"]
    assert problems_of(argv) == []
    assert parse(argv, CATALOG).warnings == ()


def test_it_needs_allocate_node_cidrs() -> None:
    [problem] = parse(["--cloud-provider=fake", "--controllers=nodeipam"], CATALOG).problems
    assert "node-ipam-controller needs --allocate-node-cidrs" in problem


def test_the_defaults_are_gos() -> None:
    outcome = parse([*ON, "--cluster-cidr=10.244.0.0/16,fd00::/48"], CATALOG)
    assert outcome.options is not None
    options = outcome.options.of(NodeIPAMOptions)
    assert options.mask_sizes() == {4: 24, 6: 64}
    assert options.cidr_allocator_type == "RangeAllocator"
    with pytest.raises(ValueError, match="--cluster-cidr: must be given"):
        NodeIPAMOptions().mask_sizes()
