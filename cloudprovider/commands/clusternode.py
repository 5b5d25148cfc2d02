"""A Node as it is in a cluster, for `check --kubeconfig`: one GET, by the official client.

Imported where it is needed, and before a deadline begins: the client's classes take a second.
"""

from __future__ import annotations

from typing import Any

import urllib3
from kubernetes.client.api.core_v1_api import CoreV1Api
from kubernetes.client.exceptions import ApiException
from kubernetes.client.models.v1_node import V1Node
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.kube_config import new_client_from_config

__all__ = ["NotRead", "read_node"]


class NotRead(Exception):
    """The Node cannot be read from its cluster; the text says why."""


def read_node(kubeconfig: str, name: str, seconds: float) -> V1Node:
    """The Node of this name in the cluster of a kubeconfig. Raises `NotRead`."""
    untyped: Any = new_client_from_config
    try:
        found: object = CoreV1Api(untyped(kubeconfig)).read_node(name, _request_timeout=seconds)
    except ApiException as error:  # its text has the headers of the answer
        raise NotRead(f"the API server answered {error.status} {error.reason}") from error
    except (OSError, ValueError, ConfigException, urllib3.exceptions.HTTPError) as error:
        raise NotRead(f"{type(error).__name__}: {error}") from error
    if not isinstance(found, V1Node):
        raise NotRead(f"the API server answered with a {type(found).__name__}")
    return found
