"""What a provider would refuse of Services: the last part of `check --services`.

A file of manifests comes in, as `kubectl get services -A -o yaml` prints them; each Service of type
LoadBalancer, of the manager's classes, goes to the provider's `check_service`. The cloud is not
asked.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from kubernetes.client.models.v1_service import V1Service

from cloudprovider.errors import InvalidService
from cloudprovider.helpers import key_of, wants_load_balancer

if TYPE_CHECKING:
    from cloudprovider.loadbalancer import LoadBalancer


class Unreadable(Exception):
    """The file is none of manifests; the text says why."""


def read_services(path: str, classes: Container[str] = ("",)) -> list[V1Service]:
    """The Services in a file of YAML or JSON, lists of them too, that want a load balancer of one
    of these classes; "" stands for no class. Raises `Unreadable`."""
    try:
        documents = list(yaml.safe_load_all(Path(path).read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise Unreadable(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    found = [service for document in documents for service in _services(document, path)]
    return [service for service in found if wants_load_balancer(service, classes)]


def refusal(balancers: LoadBalancer, service: V1Service) -> str:
    """What the provider would refuse of this Service; "" where it would build it. Raises what else
    the provider raises."""
    try:
        balancers.check_service(service)
    except InvalidService as refused:
        return f"Service {key_of(service)} would be refused: {refused}"
    return ""


def _services(document: Any, path: str) -> list[V1Service]:
    if document is None:
        return []
    if not isinstance(document, dict):
        raise Unreadable(f"{path} has a document that is no object of Kubernetes")
    if isinstance(items := document.get("items"), list):
        return [service for item in items for service in _services(item, path)]
    if document.get("kind") != "Service":
        return []
    try:
        # Fields of a later Kubernetes are no mistake of the file.
        return [V1Service.model_validate(document, extra="ignore")]
    except ValueError as error:
        raise Unreadable(f"{path} has a Service that is malformed: {' '.join(str(error).split())}") from error
