"""`cluster --silence`: the kubelet of a Node in a cluster that runs falls silent, by one PATCH.

Imported where it is needed: the official client's classes take a second.
"""

from __future__ import annotations

from typing import Any

import urllib3
from kubernetes.client.api.core_v1_api import CoreV1Api
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.kube_config import new_client_from_config

from cloudprovider.commands.failure import Failure
from cloudprovider.internal.problem import Problem

__all__ = ["silence"]

_SECONDS = 10.0
_NOT_FOUND = 404
_SILENT = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}


def silence(kubeconfig: str, name: str) -> None:
    """Set the condition Ready of this Node to Unknown, in the cluster of the kubeconfig. Raises
    `Failure`."""
    untyped: Any = new_client_from_config
    start = "start the cluster first, with `python -m cloudprovider cluster`, and leave it running"
    try:
        CoreV1Api(untyped(kubeconfig)).patch_node_status(name, _SILENT, _request_timeout=_SECONDS)
    except ApiException as error:  # its text has the headers of the answer
        if error.status == _NOT_FOUND:
            raise Failure(Problem(f"the cluster has no node {name}", "give the name of one that it has")) from None
        what = f"node {name} cannot be changed: the API server answered {error.status} {error.reason}"
        raise Failure(Problem(what, start)) from None
    except (OSError, ValueError, ConfigException, urllib3.exceptions.HTTPError) as error:
        raise Failure(Problem(f"the cluster of {kubeconfig} does not answer ({type(error).__name__})", start)) from None
