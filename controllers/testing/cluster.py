"""The cluster under test: an API server (embedded, or any that a kubeconfig names), and what
kubelets, kube-controller-manager and people do in it.

A wait is woken by watches of nodes, Services and Events, and when it fails it shows what was last
seen: the objects, their Events, and the end of the manager's log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cloudprovider.testing import objects
from cloudprovider.testing.waiting import eventually
from controllers.runtime.api import ApiError, ClientBuilder, ClientSettings
from controllers.runtime.cache import EVENTS, NODES, SERVICES, InformerFactory, Resource
from controllers.runtime.metrics import Metrics
from controllers.testing.handles import Event, NodeHandle, ServiceHandle

if TYPE_CHECKING:
    from controllers.testing.managerrun import ManagerRun

T = TypeVar("T")

_LAST_LINES: Final = 15  # of the manager's log, in an error
_PATIENCE: Final = 30.0


class Cluster:
    """See the module. For the test's thread; as a context manager it closes itself.

    `close` deletes what was made through it, also Services whose finalizer no controller removes
    any more, so that it can be used on a cluster that lives longer than the test.
    """

    def __init__(self, kubeconfig: str | Path) -> None:
        """Raises ClientConfigError when the kubeconfig cannot be used; connects later."""
        self.kubeconfig = Path(kubeconfig)
        metrics = Metrics()
        self._clients = ClientBuilder.from_options(
            str(kubeconfig), settings=ClientSettings(program="cluster-under-test"), metrics=metrics
        )
        self._rest = self._clients.rest("test")
        self._informers = InformerFactory(self._rest, metrics=metrics)
        self._news = threading.Condition()
        self._watching = False
        self._ranges = count(1)
        self._shown: dict[str, NodeHandle | ServiceHandle] = {}
        self._made: dict[str, NodeHandle | ServiceHandle] = {}
        self._manager: ManagerRun | None = None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def identity(self) -> str:
        """The UID of the namespace kube-system, by which providers tell clusters apart; empty where
        the API server does not say it."""
        return self._clients.cluster_identity() or ""

    # -- what kubelets and people do

    def join(
        self,
        name: str,
        *,
        provider_id: str = "",
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        addresses: Sequence[tuple[str, str]] = (),
        pod_cidrs: Sequence[str] | None = None,
        ready: bool = True,
    ) -> NodeHandle:
        """A kubelet with --cloud-provider=external registers its node, with the uninitialized
        taint.

        `provider_id`: what the kubelet was given, mostly nothing. `pod_cidrs`: by default the next
        /24 of CLUSTER_CIDR, as kube-controller-manager gives it. When `ready` the node is so, and
        without the taint not-ready that every new node has. Raises ApiError, AlreadyExists among
        them.
        """
        # kube-controller-manager's part: without a range the route controller has nothing to do.
        cidrs = [f"10.244.{next(self._ranges)}.0/24"] if pod_cidrs is None else pod_cidrs
        body = objects.node(
            name,
            provider_id=provider_id,
            labels=labels,
            annotations=annotations,
            addresses=addresses,
            pod_cidrs=cidrs,
            ready=ready,
        )
        self._rest.request("POST", NODES.path(), body=body)
        handle = self.node(name)
        self._made[repr(handle)] = handle
        # Every new node has the taint not-ready, whatever its conditions say.
        if ready:
            handle.mark_ready()
        return handle

    def expose(
        self,
        name: str,
        *,
        namespace: str = "default",
        ports: Sequence[int] = (80,),
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> ServiceHandle:
        """Somebody creates a Service of type LoadBalancer; `spec` adds fields, such as
        externalTrafficPolicy="Local".

        Raises ApiError.
        """
        body = objects.service(name, namespace=namespace, ports=ports, annotations=annotations, labels=labels, **spec)
        self._rest.request("POST", SERVICES.path(namespace), body=body)
        handle = self.service(name, namespace)
        self._made[repr(handle)] = handle
        return handle

    def node(self, name: str) -> NodeHandle:
        """The node of that name, whether there is one or not. `close` deletes it only if `join`
        made it."""
        handle = NodeHandle(self._rest, NODES, name)
        self._shown[repr(handle)] = handle
        return handle

    def service(self, name: str, namespace: str = "default") -> ServiceHandle:
        """The Service of that name, whether there is one or not. `close` deletes it only if
        `expose` made it."""
        handle = ServiceHandle(self._rest, SERVICES, name, namespace)
        self._shown[repr(handle)] = handle
        return handle

    # -- what came of it

    def events(self, about: NodeHandle | ServiceHandle) -> list[Event]:
        """The Events about an object of that kind and name, oldest first."""
        query = {"fieldSelector": f"involvedObject.name={about.name}"}
        path = EVENTS.path(about.namespace or "default")
        kind = "Service" if isinstance(about, ServiceHandle) else "Node"
        # A Node and a Service may share a name.
        found = [one for one in self._rest.get(path, query=query)["items"] if one["involvedObject"]["kind"] == kind]
        found.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
        return [
            Event(
                type=one.get("type") or "",
                reason=one.get("reason") or "",
                message=one.get("message") or "",
                count=one.get("count") or 1,
                source=(one.get("source") or {}).get("component") or one.get("reportingComponent") or "",
            )
            for one in found
        ]

    def wait_until(self, condition: Callable[[], T], timeout: float = _PATIENCE, what: str = "") -> T:
        """Wait until `condition` returns something true, and return that. AssertionError after
        `timeout` seconds.

        The condition is asked again whenever a Node, a Service or an Event changes, and every 0.1
        s, as a cloud does not say when it changes. An AssertionError or LookupError inside it, or
        an API server that does not answer, means "not yet"; every other exception comes through.
        The wait also ends when the manager does. The error shows what is last known: each Node and
        Service of the test, their Events and the end of the manager's log. `what` says in words
        what was waited for.
        """
        __tracebackhide__ = True
        # Only a test that waits needs watches: most API servers count them.
        self._watch()

        def look() -> T:
            manager = self._manager
            try:
                found = condition()
            except (AssertionError, LookupError, ApiError) as error:
                if manager is not None and manager.failure:
                    raise _Ended(manager.failure) from error
                raise AssertionError(f"{type(error).__name__}: {error}") from error
            # The condition first: a manager may end as the last thing that the test asked for.
            if not found and manager is not None and manager.failure:
                raise _Ended(manager.failure)
            return found

        words = what or "the condition did not hold"
        try:
            return eventually(look, timeout, words, changed=self._news)
        # Not within `eventually`, which would take an AssertionError for "not yet".
        except _Ended as end:
            raise AssertionError(f"the manager has ended: {end}\nwaited for: {words}\n{self.describe()}") from None
        except AssertionError as error:
            last = f" (last error: {error.__cause__})" if error.__cause__ is not None else ""
            raise AssertionError(f"{error}{last}\n{self.describe()}") from error.__cause__

    def describe(self) -> str:
        """The Nodes and Services of the test as they are now, their Events, and the end of the
        manager's log."""
        lines = [line for handle in self._shown.values() for line in self._described(handle)]
        if self._manager is not None:
            log = self._manager.log.splitlines()
            lines.append(f"the manager's log, the last {min(_LAST_LINES, len(log))} of {len(log)} lines:")
            lines += [f"  {line}" for line in log[-_LAST_LINES:]]
        return "\n".join(lines)

    def watch_over(self, manager: ManagerRun | None) -> None:
        """Have failed waits tell of this manager. The fixture `manager` calls it."""
        self._manager = manager

    def close(self) -> None:
        """Delete what was made through this object, and close the connections. May be called
        twice."""
        # Only what this test made: the cluster may be somebody's own.
        for handle in self._made.values():
            try:
                if handle.exists:
                    handle.delete()
                # The controllers have ended, so that nobody else takes them off.
                if handle.exists and handle.finalizers:
                    handle.patch({"metadata": {"finalizers": None}})
            except (ApiError, LookupError):
                continue  # the server is gone, or another program was faster: nothing is left to tidy
        self._made.clear()
        self._shown.clear()
        self._informers.stop()
        self._clients.close()

    def _watch(self) -> None:
        if self._watching:
            return
        self._watching = True
        kinds: tuple[Resource[Any], ...] = (NODES, SERVICES, EVENTS)
        for kind in kinds:
            self._informers.informer(kind).add_handler(
                lambda _new, _initial: self._tell(), lambda _old, _new: self._tell(), lambda _old: self._tell()
            )
        self._informers.start()

    def _tell(self) -> None:
        with self._news:
            self._news.notify_all()

    def _described(self, handle: NodeHandle | ServiceHandle) -> list[str]:
        try:
            found = handle.json
            events = self.events(handle)
        except LookupError:
            return [f"{handle!r}: does not exist"]
        except ApiError as error:
            return [f"{handle!r}: cannot be read: {error}"]
        shown = _node(found) if isinstance(handle, NodeHandle) else _service(found)
        going = ", is being deleted" if found["metadata"].get("deletionTimestamp") else ""
        lines = [f"{handle!r} (resourceVersion {found['metadata']['resourceVersion']}{going})"]
        lines += [f"  {name}: {value or 'none'}" for name, value in shown.items()]
        return [*lines, *(f"  Event {event}" for event in events)]


class _Ended(Exception):
    """The manager has ended, so that nothing will happen any more."""


def _node(node: Mapping[str, Any]) -> dict[str, str]:
    spec, status = node["spec"], node.get("status") or {}
    return {
        "providerID": spec.get("providerID", ""),
        "taints": ", ".join(f"{one['key']}:{one['effect']}" for one in spec.get("taints") or ()),
        "addresses": ", ".join(f"{one['type']} {one['address']}" for one in status.get("addresses") or ()),
        "conditions": ", ".join(f"{one['type']}={one['status']}" for one in status.get("conditions") or ()),
        "labels": _pairs(node["metadata"].get("labels")),
    }


def _service(service: Mapping[str, Any]) -> dict[str, str]:
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return {
        "type": service["spec"].get("type", ""),
        "load balancer": ", ".join(one.get("ip") or one.get("hostname") or "?" for one in ingress),
        "finalizers": ", ".join(service["metadata"].get("finalizers") or ()),
        "annotations": _pairs(service["metadata"].get("annotations")),
    }


def _pairs(found: Mapping[str, str] | None) -> str:
    return ", ".join(f"{key}={value}" for key, value in (found or {}).items())
