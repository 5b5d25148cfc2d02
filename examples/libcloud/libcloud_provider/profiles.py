"""What is known of single compute drivers, beyond what all of them have: a table.

libcloud's drivers agree on `list_nodes` and on the shape of a Node. They do not agree on what a
state means, on whether the listing is whole, or on where type and zone are. What stands here was
read in the drivers' sources, of the version that is locked. A driver without an entry works too, by
the careful defaults of `Profile`.

Why the careful defaults: for several drivers (Gandi, OpenNebula, Dimension Data, libvirt ...)
TERMINATED also means "switched off" or "paused", so a node would be deleted for a reboot. And
several read one page of a listing only, so a machine that is missing there may well run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from attrs import evolve, frozen

from cloudprovider import InstanceState

LIBCLOUD_ID = "libcloud://{driver}/{region}/{id}"
"""For clouds without a scheme of their own. Must never change."""

Question = Callable[[Any, "Parts"], Any]
"""Asks a driver for one machine: a Node of libcloud's; `EXISTS`; or None where the cloud says that
there is none. Raises what libcloud raises, an HTTP 404 among it, which means None too. An answer
that is merely empty is no "none": a parser that understands nothing finds nothing."""

EXISTS = object()
"""The machine is there, and this question does not say more."""


@frozen
class Parts:
    """What a provider ID says of a machine. Empty: nothing."""

    id: str = ""
    name: str = ""
    zone: str = ""


@frozen(kw_only=True)
class Profile:
    """One driver. Texts such as "extra.zone|extra.location" are paths in a libcloud Node; the first
    that has a value counts."""

    provider_id: str = LIBCLOUD_ID
    """As the cloud's own cloud-controller-manager writes it, so that a cluster can change over and
    back."""
    kind: str = "extra.instance_type|size"
    zone: str = ""
    region: str = ""
    """Where the machine itself says it; `region` of the configuration counts more."""
    region_of_zone: str = ""
    """A pattern: its first group is the region."""
    region_argument: str = ""
    """The driver's argument that takes `region` of the configuration."""
    names: str = ""
    """Further names by which nodes may be called, beside the machine's name and ID."""
    internal_dns: str = ""
    question: Question | None = None
    """The question about one machine that a listing lacks. None: the driver has none."""
    gone: str = ""
    """A pattern in the body of an error that means "not found" to this question, beside an HTTP
    404."""
    terminated: InstanceState | None = None
    """What TERMINATED means. None: the driver says it for several things; the node is left
    alone."""
    defaults: Mapping[str, object] = {}
    """Arguments of the driver that the configuration may give otherwise."""
    nodes: Callable[[Any], Any] = lambda driver: driver.list_nodes()
    """The listing."""
    required: tuple[str, ...] = ()
    """Arguments without which the driver would list too little, or without time limits."""
    refused: str = ""
    """Why this driver cannot be used here."""


def by_method(method: str) -> Question:
    """Ask by a method of the driver that takes the machine's ID."""
    return lambda driver, parts: getattr(driver, method)(parts.id)


def by_path(path: str) -> Question:
    """Ask the cloud's API for this path, where the driver has no method for it."""

    def ask(driver: Any, parts: Parts) -> object:
        driver.connection.request(path.format(id=quote(parts.id, safe="")))
        return EXISTS

    return ask


def _by_node_ids(driver: Any, parts: Parts) -> object:
    # By filter, an unknown ID would be an empty answer; so is one that the parser cannot read.
    found = driver.list_nodes(ex_node_ids=[parts.id])
    if not found:
        raise ValueError(f"the answer about {parts.id} is empty, where an error was due")
    return found[0]


def _by_gce_name(driver: Any, parts: Parts) -> object:
    return driver.ex_get_node(parts.name, parts.zone)


def _by_cloudstack_id(driver: Any, parts: Parts) -> object:
    # `ex_get_node` raises a bare Exception for "not found", and for other things.
    answer = driver._sync_request("listVirtualMachines", params={"id": parts.id})
    return EXISTS if answer.get("virtualmachine") else None


_GONE, _OFF, _RUNS = InstanceState.GONE, InstanceState.SHUTDOWN, InstanceState.RUNNING

_EC2_LIKE = Profile(
    provider_id="aws:///{zone}/{id}",
    kind="extra.instance_type",
    zone="extra.availability",
    region_of_zone=r"(.*\d)[a-z]",
    region_argument="region",
    names="extra.private_dns",
    internal_dns="extra.private_dns",
    question=_by_node_ids,
    gone=r"InvalidInstanceID\.NotFound",
    terminated=_GONE,
)
_EC2 = evolve(_EC2_LIKE, defaults={"signature_version": "4"})  # libcloud's 2 is refused in newer regions
_OPENSTACK = Profile(
    provider_id="openstack:///{id}",
    kind="extra.flavor_details.original_name|extra.flavorId",
    zone="extra.availability_zone",
    region_argument="ex_force_service_region",
    question=by_method("ex_get_node_details"),
    terminated=_GONE,
)
_RACKSPACE = Profile(
    provider_id="openstack:///{id}",
    kind="extra.flavorId",
    region_argument="region",
    question=by_method("ex_get_node_details"),
    terminated=_GONE,
)
_CLOUDSTACK = Profile(
    provider_id="external-cloudstack://{id}",
    kind="extra.size_name",
    zone="extra.zone_name",
    question=_by_cloudstack_id,
    gone="entity does not exist",
    terminated=_GONE,
)
_DIMENSION = Profile(region_argument="region")
NO_LOGIN = "its login fails: it takes an answer from libcloud's HTTP client in a way that this no longer has"
_NO_LIMIT = "its requests bypass libcloud's connection, so they would have no time limit"

PROFILES: Mapping[str, Profile] = {
    "aliyun_ecs": Profile(
        kind="extra.instance_type", zone="extra.zone_id", region="extra.region_id", region_argument="region"
    ),
    "aurora_compute": _CLOUDSTACK,
    "azure": Profile(refused="it lists one cloud service at a time, and Microsoft has closed the classic cloud"),
    "azure_arm": Profile(
        provider_id="azure://{id}",
        kind="extra.properties.hardwareProfile.vmSize",
        region="extra.location",
        region_argument="region",
        question=by_method("ex_get_node"),
        terminated=_RUNS,  # "deleting"
    ),
    "brightbox": Profile(refused=NO_LOGIN),
    "cloudscale": Profile(
        provider_id="cloudscale://{id}", kind="size.id", zone="extra.zone.slug", question=by_path("/v1/servers/{id}")
    ),
    "cloudsigma": Profile(question=by_method("ex_get_node")),
    "cloudstack": _CLOUDSTACK,
    "digitalocean": Profile(
        provider_id="digitalocean://{id}",
        kind="extra.size_slug",
        question=by_method("ex_get_node_details"),
        terminated=_OFF,  # "archive"
    ),
    "dimensiondata": _DIMENSION,
    "dummy": Profile(terminated=_GONE, question=lambda driver, parts: None),
    "ec2": _EC2,
    "equinixmetal": Profile(
        provider_id="equinixmetal://{id}",
        kind="extra.plan",
        zone="extra.facility.code",
        region="extra.metro.code",
        question=by_path("/metal/v1/devices/{id}"),
        terminated=_RUNS,  # also "deprovisioning"
        # Its list_nodes needs asyncio.coroutine, which is no more, and threads without limits.
        nodes=lambda driver: driver.ex_list_nodes_for_project(driver._project),
        required=("project",),
    ),
    "eucalyptus": _EC2_LIKE,
    "exoscale": Profile(
        provider_id="exoscale://{id}",
        kind="extra.size_name",
        region="extra.zone_name",
        question=_by_cloudstack_id,
        gone="entity does not exist",
        terminated=_GONE,
    ),
    "gce": Profile(
        provider_id="gce://{project}/{zone}/{name}",
        kind="extra.machineType",
        zone="extra.zone.name",
        region_of_zone=r"(.*)-[a-z]",
        question=_by_gce_name,
        nodes=lambda driver: driver.list_nodes(ex_zone="all"),
        required=("project",),
    ),
    "gridscale": Profile(kind="", question=by_path("objects/servers/{id}")),
    "ikoula": _CLOUDSTACK,
    "internetsolutions": _DIMENSION,
    "kamatera": Profile(kind="", zone="extra.location"),
    "maxihost": Profile(kind=""),
    "ktucloud": _CLOUDSTACK,
    "kubevirt": Profile(provider_id="kubevirt://{name}"),
    "libvirt": Profile(refused=_NO_LIMIT),
    "linode": Profile(
        provider_id="linode://{id}",
        kind="size",
        region="extra.location",
        question=by_method("ex_get_node"),
    ),
    "nimbus": _EC2_LIKE,
    "ntta": _DIMENSION,
    "nttcis": _DIMENSION,
    "openstack": _OPENSTACK,
    "outscale": Profile(refused=_NO_LIMIT),
    "outscale_inc": _EC2_LIKE,
    "outscale_sas": _EC2_LIKE,
    "ovh": Profile(
        provider_id="openstack:///{id}",
        kind="extra.flavorId",
        region="extra.region",
        region_argument="region",
        question=by_method("ex_get_node"),
        required=("ex_consumer_key",),  # without it the driver asks for one, on the terminal
    ),
    "rackspace": _RACKSPACE,
    "rackspace_first_gen": _RACKSPACE,
    "scaleway": Profile(
        provider_id="scaleway://instance/{zone}/{id}",
        kind="",
        zone="extra.region",
        region_of_zone=r"(.*)-\d+",
        region_argument="region",
    ),
    "upcloud": Profile(kind="", provider_id="upcloud:////{id}", question=by_path("1.2/server/{id}")),
    "vcl": Profile(refused="its list_nodes wants the address of a client"),
    "vsphere": Profile(refused=_NO_LIMIT),
    "vultr": Profile(
        provider_id="vultr://{id}",
        kind="size",
        region="extra.location",
        question=by_method("ex_get_node"),
        nodes=lambda driver: driver.list_nodes(ex_list_bare_metals=False),  # these are asked by another path
    ),
}


def profile_of(driver: str) -> Profile:
    """The driver's entry, or the defaults."""
    return PROFILES.get(driver, Profile())
