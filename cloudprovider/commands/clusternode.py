"""One request about a Node of a cluster, by the official client: `check --kubeconfig` reads it,
`cluster --silence` has its kubelet fall silent.

Imported where it is needed, and before a deadline begins: the client's classes take a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import urllib3
from kubernetes.client.api.core_v1_api import CoreV1Api
from kubernetes.client.exceptions import ApiException
from kubernetes.client.models.v1_node import V1Node
from kubernetes.config.kube_config import new_client_from_config

from cloudprovider.commands.asking import Failure
from cloudprovider.internal.problem import Problem

_SECONDS = 10.0
_NOT_FOUND = 404
_SILENT = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}


class NotDone(Exception):
    """The cluster has not done what it was asked for; the text says why. `status` is that of its
    answer, 0 where there was none."""

    def __init__(self, why: str, status: int = 0) -> None:
        super().__init__(why)
        self.status = status


def read_node(kubeconfig: str, name: str, seconds: float) -> V1Node:
    """The Node of this name in the cluster of a kubeconfig. Raises `NotDone`."""
    found = _asked(kubeconfig, lambda api: api.read_node(name, _request_timeout=seconds))
    if not isinstance(found, V1Node):
        raise NotDone(f"the API server answered with a {type(found).__name__}")
    return found


def silence(kubeconfig: str, name: str) -> None:
    """Set the condition Ready of this Node to Unknown, in the cluster of the kubeconfig. Raises
    `Failure`."""
    try:
        _asked(kubeconfig, lambda api: api.patch_node_status(name, _SILENT, _request_timeout=_SECONDS))
    except NotDone as error:
        if error.status == _NOT_FOUND:
            raise Failure(Problem(f"the cluster has no node {name}", "give the name of one that it has")) from None
        what = f"the cluster of {kubeconfig} does not answer ({type(error.__cause__).__name__})"
        if error.status:
            what = f"node {name} cannot be changed: {error}"
        fix = "start the cluster first, with `python -m cloudprovider cluster`, and leave it running"
        raise Failure(Problem(what, fix)) from None


def _asked(kubeconfig: str, call: Callable[[CoreV1Api], object]) -> object:
    untyped: Any = new_client_from_config
    try:
        api = CoreV1Api(untyped(kubeconfig))
    # The loader raises a dozen kinds, of which some are no ConfigException.
    except Exception as error:
        raise NotDone(f"{type(error).__name__}: {' '.join(str(error).split())}") from error
    try:
        return call(api)
    except ApiException as error:  # its text has the headers of the answer
        raise NotDone(f"the API server answered {error.status} {error.reason}", error.status or 0) from error
    except (OSError, ValueError, urllib3.exceptions.HTTPError) as error:
        raise NotDone(f"{type(error).__name__}: {error}") from error
