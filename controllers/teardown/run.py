"""One teardown: start the provider, show what the cluster owns, and with --yes delete it.

Stage: in the manager's place. Only its gateway to the cloud is used, no controller. The API server,
where it is there, is asked who the cluster is, and whether its manager still works, which would
build again what is deleted. Nothing is written there."""

from __future__ import annotations

import logging
import math
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, NoReturn, TextIO

from cloudprovider import CloudConfig, CloudProviderError, Interface, StopSignal
from cloudprovider.internal.cleaning import one_line
from cloudprovider.internal.output import aligned, counted
from controllers.cloudcalls import CLOUD_ERRORS, CloudCallOptions, CloudCalls
from controllers.manager.provider_host import ManagerError, ProviderHost
from controllers.options.declare import DEFAULT_CLUSTER_NAME
from controllers.runtime.api import ApiError, NotFound
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.teardown.deleting import Deletion, Trial
from controllers.teardown.items import Inventory, Item, Lister
from controllers.teardown.options import TeardownOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kubernetes.client.api_client import ApiClient
    from kubernetes.client.configuration import Configuration

    from cloudprovider.ips import IPNetwork
    from controllers.registration.options import Options
    from controllers.runtime.api import ClientBuilder

log = logging.getLogger(__name__)

NOTHING_LEFT: Final = 0
FAILED: Final = 1
"""Something is left, or not known, or nothing could be done."""
TO_DELETE: Final = 3
"""Without --yes: there is something to delete. As of a dry run."""
_LOOK: Final = 1.0  # seconds between two looks at the lease
_MOST: Final = 60.0  # of a lease's duration: what a hand wrote there must not hold us up
_IDENTITY: Final = "teardown"
_COLUMNS: Final = ("KIND", "NAME", "FOR", "WHAT HAPPENS")


class NotConfirmed(Exception):
    """A call that changes the cloud, without --yes. It was not made."""


class Teardown:
    """One teardown; `print_to` may be called once.

    `clients` is for the API server where there is one, None where there is none. `cidrs` are the
    cluster's ranges of pod addresses.
    """

    def __init__(
        self,
        options: Options,
        provider: Interface,
        clients: ClientBuilder | None = None,
        *,
        config: CloudConfig | None = None,
        cidrs: Sequence[IPNetwork] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._options = options
        self._given = options.of(TeardownOptions)
        # The manager's own arguments are taken, --dry-run among them: it changes nothing here, too.
        self._yes = self._given.yes and not options.manager.plan.enabled
        self._cluster = options.manager.cluster_name
        self._provider = provider
        self._clients = clients
        self._config = config
        self._cidrs = cidrs
        self._clock = clock

    def print_to(self, file: TextIO | None, stop: StopSignal) -> int:
        """Do it, print what there was and what is left, and return the exit code. Blocks.

        Raises ManagerError where the provider cannot start, or the API server that was named does
        not answer; what the cloud raised where it cannot be asked what there is."""
        with ExitStack() as ends:
            if self._clients is not None:
                ends.callback(self._clients.close)
            identity = self._identity()
            # Before the cloud is asked: a manager at work would build again what is deleted.
            held = self._leader(stop)
            cloud = CloudCalls(
                self._provider,
                options=self._options.of(CloudCallOptions),
                clock=self._clock,
                guard=None if self._yes else _refuse,
            )
            allow = self._options.manager.allow_untagged_cloud
            host = ProviderHost(self._provider, cloud, self._config, allow_untagged_cloud=allow, clock=self._clock)
            for part in (host.close, host.cancel, host.ask_to_stop):  # in reverse
                ends.callback(part)
            # A signal came while the provider started: nothing was listed, nothing is known.
            if not host.initialize(ClusterWords(self._cluster, identity), None, stop):
                return FAILED
            lister = Lister(cloud, self._cluster, self._cidrs, self._given.also_kept)
            deletion = Deletion(lister.found, self._clock, stop)
            try:
                inventory = deletion.first()
            except CLOUD_ERRORS as error:
                raise ManagerError(
                    f"what cluster {self._cluster!r} owns is not known, nothing was done: {error}"
                ) from error
            _print(file, before(inventory))
            try:
                return self._go_on(deletion, inventory, self._refusal(identity, held), file)
            except CLOUD_ERRORS as error:
                raise ManagerError(f"what is left of cluster {self._cluster!r} is not known: {error}") from error

    def release_held(self) -> int:
        """As of `Manager`. Nothing is held back here."""
        return 0

    def _go_on(self, deletion: Deletion, inventory: Inventory, refusal: str, file: TextIO | None) -> int:
        number = len(inventory.to_delete)
        if not self._yes:
            # What cannot be listed may be there: then "nothing" would be a guess.
            if not inventory.left and not inventory.unknown:
                _print(file, f"Cluster {self._cluster!r} has nothing to delete in the cloud.\n")
                return NOTHING_LEFT
            if not number:
                _print(file, "Nothing was changed, and --yes would delete nothing: see the lines above.\n")
                return FAILED
            flags = "without --dry-run" if self._given.yes else "with --yes"
            how = f"It would be refused: {refusal}." if refusal else f"The same command {flags} deletes them."
            _print(file, f"{counted(number, 'thing')} to delete. Nothing was changed. {how}\n")
            return TO_DELETE
        if refusal and number:
            _print(file, f"Nothing was changed: {refusal}.\n")
            return FAILED
        left = deletion.run(inventory, self._given.wait)
        if left.items:
            _print(file, f"\nLEFT\n{after(left, deletion.trials)}")
        if left.left or left.unknown:
            _print(file, f"{counted(len(left.left), 'thing')} left. The same command goes on where this one ended.\n")
            return FAILED
        gone = number - len(left.to_delete)
        _print(file, f"Deleted {counted(gone, 'thing')}. Nothing is left that was to be deleted.\n")
        return NOTHING_LEFT

    def _refusal(self, identity: str, held: str) -> str:
        """Why nothing may be deleted; "" where it may."""
        if held:
            lease = self._options.manager.leader_election
            return (
                f"the manager {held} holds the Lease {lease.resource_namespace}/{lease.resource_name} and would build "
                "again what is deleted. Stop it first, as with kubectl scale --replicas=0"
            )
        # A kubeconfig says which cluster is meant, and nothing about whose the listed things are.
        if self._cluster == DEFAULT_CLUSTER_NAME and not self._given.cluster_identity:
            uid = f"--cluster-identity={identity}" if identity else "--cluster-identity"
            return (
                f"{DEFAULT_CLUSTER_NAME} is the name of every cluster that was given none, so this may be another "
                f"one's. Look at the list, and if all of it is this cluster's, give {uid}, the UID of its namespace "
                "kube-system"
            )
        return ""

    def _identity(self) -> str:
        given = self._given.cluster_identity
        if self._clients is None:
            return given
        try:
            found = self._clients.cluster_identity()
        except ApiError as error:
            raise ManagerError(
                f"the API server does not answer: {error}. Without one, leave out --kubeconfig and --master"
            ) from error
        if given and found and given != found:
            raise ManagerError(
                f"--cluster-identity={given} is not the cluster of the kubeconfig, whose identity is {found}. "
                "Nothing was done"
            )
        return given or found or ""

    def _leader(self, stop: StopSignal) -> str:
        if self._clients is None:
            return ""
        lease = self._options.manager.leader_election
        try:
            return leader(self._clients, lease.resource_namespace, lease.resource_name, self._clock, stop)
        except ApiError as error:
            raise ManagerError(f"whether a manager still works is not known: {error}. Nothing was done") from error


def _refuse(method: str) -> None:
    raise NotConfirmed(f"{method} was not called: --yes was not given")


def _print(file: TextIO | None, text: str) -> None:
    print(text, end="", file=file, flush=True)


def before(inventory: Inventory) -> str:
    """What there is, and what would be done."""
    rows = [(one, f"stays: {one.stays}" if one.stays else "is deleted") for one in inventory.items]
    return _table(rows) + _unknown(inventory)


def after(inventory: Inventory, trials: Mapping[Item, Trial]) -> str:
    """What is left, and why."""
    rows = [(one, _why(one, trials.get(one, Trial()))) for one in inventory.items]
    return _table(rows) + _unknown(inventory)


def _why(item: Item, trial: Trial) -> str:
    if item.stays:
        return f"stays: {item.stays}"
    if not trial.times:
        return "not deleted: the time was over"
    if trial.said:
        return f"not deleted: {trial.said}"
    return "deleted, and the cloud still lists it"


def _unknown(inventory: Inventory) -> str:
    return "".join(f"UNKNOWN: {line}; look into the cloud\n" for line in inventory.unknown)


def _table(rows: Sequence[tuple[Item, str]]) -> str:
    if not rows:
        return ""
    # What the cloud says must not pass for a row of its own.
    texts = [(one.kind, one.name, one.what_for, what) for one, what in rows]
    cells = [_COLUMNS, *(tuple(one_line(text, 1000) for text in row) for row in texts)]
    return aligned(cells) + "\n"


# ---- what the API server says


class ClusterWords:
    """The cluster as the provider sees it in a teardown: a name and an identity, and no API server,
    as that may be gone. Implements `cloudprovider.ClientBuilder`."""

    def __init__(self, name: str, identity: str) -> None:
        self._name = name
        self._identity = identity

    def config(self, name: str) -> Configuration:
        """Refused."""
        self._refuse(name)

    def client(self, name: str) -> ApiClient:
        """Refused."""
        self._refuse(name)

    def cluster_name(self) -> str:
        """As --cluster-name says."""
        return self._name

    def cluster_identity(self) -> str | None:
        """As --cluster-identity or the API server says."""
        return self._identity or None

    def _refuse(self, name: str) -> NoReturn:
        raise CloudProviderError(f"there is no client {name}: teardown gives a provider no access to the cluster")


def leader(clients: ClientBuilder, namespace: str, name: str, clock: Clock, stop: StopSignal) -> str:
    """Who holds the Lease and renews it; "" for nobody. Blocks for at most its duration: whether it
    is renewed is seen by watching, not by the clocks of two machines. Raises ApiError."""
    first = _lease(clients, namespace, name)
    holder = _spec(first).get("holderIdentity")
    # A manager that ended has given the Lease back: then there is nothing to wait for.
    if not isinstance(holder, str) or not holder:
        return ""
    until = clock.monotonic() + _seconds(first)
    while clock.monotonic() < until and not stop.wait(_LOOK):
        found = _lease(clients, namespace, name)
        # Somebody renews it. The clocks of two machines are never compared.
        if _spec(found) != _spec(first):
            now = _spec(found).get("holderIdentity")
            return now if isinstance(now, str) else ""
    return ""


def _lease(clients: ClientBuilder, namespace: str, name: str) -> dict[str, Any]:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
    try:
        return dict(clients.rest(_IDENTITY).get(path))
    except NotFound:
        return {}


def _spec(lease: dict[str, Any]) -> dict[str, Any]:
    spec = lease.get("spec")
    return spec if isinstance(spec, dict) else {}


def _seconds(lease: dict[str, Any]) -> float:
    said = _spec(lease).get("leaseDurationSeconds")
    # Anybody with the right may have written anything there.
    usable = isinstance(said, int | float) and math.isfinite(said) and said > 0
    return min(float(said), _MOST) + _LOOK if usable and said is not None else _MOST
