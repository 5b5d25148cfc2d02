"""The pages for those who come from Go: what they name of ours is in the code, and nothing of ours
is missing."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import pytest
from aws_provider.annotations import Annotations
from aws_provider.config import Config as AWSConfig
from libcloud_provider.arguments import SECRET_NAMES, argument_problems, balancer_drivers, compute_drivers
from libcloud_provider.balancers import balancer_profile_of
from libcloud_provider.config import Config
from libcloud_provider.profiles import profile_of
from openstack_provider.config import ClassConfig, LoadBalancerConfig, MetadataConfig, Networking, RouteConfig
from openstack_provider.config import Config as OpenStackConfig

import cloudprovider
from cloudprovider import Interface
from cloudprovider.commands.cli import parser
from cloudprovider.loading.diagnostics import ACCESSORS
from controllers.catalog import CATALOG
from controllers.flags.parse import parse
from tests.support.blocks import blocks
from tests.support.pages import ROOT

DRIVERS = {"digitalocean": "digitalocean", "gcp": "gce", "azure": "azure_arm"}
"""By page: libcloud's driver. Hetzner has none, OpenStack a provider of its own."""

GUIDES = ROOT / "docs" / "guides"
PAGES = sorted(GUIDES.glob("from-go-*.md"))
WHICH = (GUIDES / "which-interface.md").read_text()
CODE = re.compile(r"`([^`]+)`")
PREFIX = "service.beta.kubernetes.io/aws-load-balancer-"


def tables(text: str) -> Iterator[list[list[str]]]:
    """The cells of each table, its head first."""
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.M):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        yield [rows[0], *rows[2:]]


def table_after(text: str, mark: str) -> list[list[str]]:
    """The rows of the table below a comment, without its head."""
    _, found, rest = text.partition(f"<!-- checked: {mark} -->\n")
    assert found, mark
    return next(tables(rest))[1:]


# which interface


def interfaces() -> set[str]:
    """The abstract classes that a provider may implement."""
    found = {name: getattr(cloudprovider, name) for name in cloudprovider.__all__}
    host = {"ClientBuilder", "Lister", "Listers", "StopSignal"}
    return {name for name, one in found.items() if inspect.isclass(one) and inspect.isabstract(one)} - host


def test_every_interface_and_accessor_is_on_the_page() -> None:
    offered, methods, *_ = tables(WHICH)
    ours = {name for row in offered[1:] for name in CODE.findall(row[1])}
    accessors = {name for row in offered[1:] for name in CODE.findall(row[2])}
    assert ours >= interfaces()
    assert accessors == set(ACCESSORS)
    assert all(hasattr(cloudprovider, name) for name in ours)
    named = {name for row in methods[1:] for name in CODE.findall(row[1])}
    assert all(callable(getattr(Interface, name)) for name in named)
    public = {name for name in vars(Interface) if not name.startswith("_")}
    assert public == named | accessors


def test_an_accessor_is_of_the_interface_in_its_row() -> None:
    for row in next(tables(WHICH))[1:]:
        for accessor in CODE.findall(row[2]):
            returned = inspect.signature(getattr(Interface, accessor)).return_annotation
            ours = row[1].strip("`")
            # A second base of that class, or a class of that kind.
            beside = {"OwnedLoadBalancers": "LoadBalancer", "SSHKeys": "InstancesV2", "Machines": "InstancesV2"}
            assert returned == f"{beside.get(ours, ours)} | None", row


# from Go


def test_there_are_pages_and_each_says_what_was_never_tried() -> None:
    assert len(PAGES) == 6
    assert all(re.search(r"has\s+not\s+run\s+against", page.read_text()) for page in PAGES)


WITHOUT = {
    "--tags", "--resources", "--tagging-controller-rate-limit", "--tagging-controller-burst-limit",
    "--tagging-controller-concurrent-node-syncs", "--tagging-controller-enable-batching", "--user-agent",
    "--enable-multi-project", "--enable-rbs-default-l4-netlb", "--enable-l4-lb-annotations",
    "--enable-l4-deny-firewall", "--enable-l4-deny-firewall-rollback-cleanup", "--enable-l4-ilb-fine-grained-lock",
    "--cloud-provider-gce-lb-src-cidrs", "--cloud-provider-gce-l7lb-src-cidrs", "--enable-multi-subnet-cluster",
    "--enable-multi-networking", "--enable-gke-tenant-controller", "--enable-dynamic-reloading",
    "--cloud-config-secret-name", "--cloud-config-secret-namespace", "--cloud-config-key",
    "--node-filter-requirements",
}  # fmt: skip
"""Flags of the Go programs that the pages say are not here."""


def test_flags_on_the_pages_are_ours_but_for_those_without_a_counterpart() -> None:
    named = {flag for page in PAGES for flag in re.findall(r"`(--[a-z][\w-]*)(?:=[\w*-]+)?`", page.read_text())}
    assert named >= WITHOUT
    assert len(named - WITHOUT) > 10
    assert {flag for flag in named if is_unknown(flag)} == WITHOUT


def is_unknown(flag: str) -> bool:
    return any("there is no such flag" in problem for problem in parse([f"{flag}=1"], CATALOG).problems)


def test_every_annotation_of_ours_is_on_the_page_of_aws() -> None:
    rows = table_after((GUIDES / "from-go-aws.md").read_text(), "annotations")
    said = {f"{PREFIX}{row[0].strip('`')}": row[1].partition(" ")[0].strip(";:") for row in rows}
    assert len(said) == len(rows)
    assert set(said.values()) <= {"yes", "no", "refused"}
    ours = set(re.findall(r"^\| `([^`]+)` \|", Annotations.markdown_table(), re.M))
    assert ours
    assert {name for name, answer in said.items() if answer != "no"} == ours
    refused = set(re.findall(r"^\| `([^`]+)` \| nothing:", Annotations.markdown_table(), re.M))
    assert {name for name, answer in said.items() if answer == "refused"} == refused


def test_settings_of_aws_are_there() -> None:
    text = (GUIDES / "from-go-aws.md").read_text()
    (rows,) = (table for table in tables(text) if table[0][:2] == ["in Go", "here"] and len(table) > 8)
    named = {name for row in rows[1:] for name in CODE.findall(row[1])}
    assert named == set(AWSConfig.model_fields)


SECTIONS = {
    "": OpenStackConfig.model_fields.keys()
    - {"networking", "loadbalancer", "loadbalancerclass", "route", "metadata", "blockstorage"},
    " networking": Networking.model_fields.keys(),
    " loadbalancer": LoadBalancerConfig.model_fields.keys() | ClassConfig.model_fields.keys(),
    " others": RouteConfig.model_fields.keys() | MetadataConfig.model_fields.keys(),
}
"""The fields of OpenStack's configuration by the table that has them."""


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_of_openstack_is_on_its_page(section: str) -> None:
    rows = table_after((GUIDES / "from-go-openstack.md").read_text(), f"keys openstack{section}")
    named = [name for row in rows for name in CODE.findall(row[0]) if not name.startswith("[")]
    assert len(named) == len(set(named))
    assert {name.replace("-", "_") for name in named} == SECTIONS[section]


@pytest.mark.parametrize("page", DRIVERS)
def test_settings_of_libcloud_are_there(page: str) -> None:
    rows = table_after((GUIDES / f"from-go-{page}.md").read_text(), f"arguments {page}")
    named = {name for row in rows for name in CODE.findall(row[1])}
    assert len(named) > 2
    for name in named:
        place, _, argument = name.partition(".")
        assert place in Config.model_fields
        if argument:
            assert argument_problems(compute_drivers()[DRIVERS[page]], [argument]) == []
            assert place == "credentials" or argument not in SECRET_NAMES


def test_provider_ids_are_those_of_the_drivers() -> None:
    words = {"id": "ID", "project": "PROJECT", "zone": "ZONE", "name": "NAME"}
    for page, driver in DRIVERS.items():
        own = {"id": "/subscriptions/..."} if page == "azure" else {}
        shown = profile_of(driver).provider_id.format(**{**words, **own})
        assert f"`{shown}`" in (GUIDES / f"from-go-{page}.md").read_text()


def test_what_the_pages_say_is_missing_is_missing() -> None:
    assert balancer_profile_of("gce").refused
    assert not [name for name in balancer_drivers() if "azure" in name]
    assert not [name for name in compute_drivers() if "hetzner" in name or "hcloud" in name]


def test_commands_on_the_pages_are_ours() -> None:
    """Their arguments are checked with all blocks; here only that each page of libcloud has one."""
    for page in DRIVERS:
        (block,) = (one for one in blocks(GUIDES / f"from-go-{page}.md") if one.language == "console")
        words = block.text.removeprefix("$ python -m cloudprovider ").split()
        assert parser().parse_args(words).node == "NODE"


def test_the_skeleton_has_the_methods_of_the_table_for_hetzner() -> None:
    text = (GUIDES / "from-go-hetzner.md").read_text()
    (rows,) = (table for table in tables(text) if table[0][0] == "method of `api.py`")
    named = {name for row in rows[1:] for name in CODE.findall(row[0])}
    template = ROOT / "cloudprovider" / "commands" / "template" / "http" / "package" / "api.py.tmpl"
    _, _, api = template.read_text().partition("class API:")
    assert named == set(re.findall(r"    def ([a-z]\w*)\(self", api))
