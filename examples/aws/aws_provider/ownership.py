"""Whose a load balancer or a target group is, by its tags in AWS. What is not proved to be ours is
never touched.

Tags are set by the same call that creates a thing, so nothing of ours is ever without. A load
balancer that the Go provider made carries no UID: the cluster's tag and the Service's name, under a
name made of its UID, are enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_provider.clients import Clients
from aws_provider.plan import Identity
from aws_provider.tags import CLUSTER_TAG_PREFIX, SERVICE_NAME_TAG, SERVICE_UID_TAG, is_owned, tag_list, tag_map
from cloudprovider import CloudProviderError

MAX_TAGGED = 20
"""How many things AWS tells the tags of, or tags, at once."""


class NotOurs(CloudProviderError):
    """Something in AWS has a name of ours, but not our tags."""


def tags_of(clients: Clients, arns: Sequence[str]) -> dict[str, dict[str, str]]:
    """The tags of each of these load balancers or target groups, by ARN. Raises what botocore
    raises."""
    found: dict[str, dict[str, str]] = {}
    for start in range(0, len(arns), MAX_TAGGED):
        answer = clients.elb.describe_tags(ResourceArns=arns[start : start + MAX_TAGGED])
        found |= {one.get("ResourceArn", ""): tag_map(one.get("Tags")) for one in answer["TagDescriptions"]}
    return found


def add_tags(clients: Clients, wanted: Mapping[str, str], present: Mapping[str, Mapping[str, str]]) -> None:
    """Have these tags on things that are the Service's, whose tags are `present`, by ARN. Others
    stay."""
    lacking = sorted(arn for arn, tags in present.items() if not wanted.items() <= tags.items())
    for start in range(0, len(lacking), MAX_TAGGED):
        clients.elb.add_tags(ResourceArns=lacking[start : start + MAX_TAGGED], Tags=tag_list(wanted))


def is_of(tags: Mapping[str, str], service: Identity) -> bool:
    """Whether the tags prove that the thing was made for this Service of this cluster."""
    if not is_owned(tags, service.cluster):
        return False
    if SERVICE_UID_TAG in tags:
        return tags[SERVICE_UID_TAG] == service.uid
    return tags.get(SERVICE_NAME_TAG) == service.service


def check(kind: str, name: str, tags: Mapping[str, str], service: Identity) -> None:
    """Return where the thing is the Service's. Raises `NotOurs`, which says what its tags are and
    what to do."""
    if is_of(tags, service):
        return
    kept = (SERVICE_NAME_TAG, SERVICE_UID_TAG)
    shown = {key: value for key, value in tags.items() if key in kept or key.startswith(CLUSTER_TAG_PREFIX)}
    raise NotOurs(
        f"the {kind} {name} is left alone: its tags do not say that cluster {service.cluster} made it for "
        f"{service.service} (they say {shown or 'nothing'}). Rename or delete it, or, if it is the Service's, give it "
        f"the tags {CLUSTER_TAG_PREFIX}{service.cluster}=owned and {SERVICE_UID_TAG}={service.uid}."
    )
