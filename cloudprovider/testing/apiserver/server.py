"""The embedded API server: a kube-apiserver stand-in for tests and demos, over real HTTP in this
process.

Wires store, kinds, operations and HTTP together. What it cannot do it answers with 501; what it can
do a parity test compares with the real kube-apiserver.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cloudprovider.internal.output import write_whole
from cloudprovider.internal.patching import MERGE_PATCH
from cloudprovider.testing.apiserver.access import Access
from cloudprovider.testing.apiserver.errors import JSON, not_implemented
from cloudprovider.testing.apiserver.http import Certificates, Listener
from cloudprovider.testing.apiserver.kinds import catalog
from cloudprovider.testing.apiserver.kinds.kind import Kind
from cloudprovider.testing.apiserver.rest.api import API, Router
from cloudprovider.testing.apiserver.rest.decoding import Options
from cloudprovider.testing.apiserver.rest.operations import Operations, Outcome
from cloudprovider.testing.apiserver.rest.reads import list_objects
from cloudprovider.testing.apiserver.storage import Store

SYSTEM_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
KUBECONFIG_NAME: Final = "embedded"
"""Of cluster, user and context in a kubeconfig: what marks it as ours."""


class EmbeddedAPIServer:
    """An API server on a loopback port, with data that lives as long as the object.

    `port` 0 takes a free one and keeps it over restarts. `token` is the administrator's bearer
    token, by default a random one. `tls` True serves HTTPS with a certificate of its own, see
    `ca_file`. `anonymous` lets requests without a token in as system:anonymous instead of answering
    401. `bookmark_interval` is in seconds.

    `start` and `stop` may be called in turn any number of times, or use it as a context manager.
    The helpers (`create`, `get`, `list`, `patch`, `delete`) work on the store without HTTP, started or
    not, and from any thread.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        token: str | None = None,
        tls: bool = False,
        anonymous: bool = False,
        bookmark_interval: float = 60.0,
    ) -> None:
        self.token = token or secrets.token_hex(16)
        self.access = Access(self.token, anonymous=anonymous)
        self.store = Store()
        # Kinds of this server's own: Services hold the addresses that they were given in their
        # strategy.
        self._router = Router(catalog.kinds())
        self._by_plural = {kind.plural: kind for kind in self.kinds()}
        self._by_kind = {kind.kind: kind for kind in self.kinds()}
        self._operations = Operations(self.store)
        self.api = API(self.store, self._router, self._operations, self.access, bookmark_interval=bookmark_interval)
        self._port = port
        self._tls: ssl.SSLContext | None = None
        self.ca_file: Path | None = None
        """With TLS, the certificate to trust."""
        if tls:
            self._certificates = Certificates()
            self._tls, self.ca_file = self._certificates.context, self._certificates.ca_file
        self._listener: Listener | None = None
        # As in a new cluster: without kube-system there is no UID to tell clusters apart by.
        for name in SYSTEM_NAMESPACES:
            self.create({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}})
        self.create(catalog.kubernetes_service())

    # -- life

    def start(self) -> EmbeddedAPIServer:
        """Listen and serve; returns once connections are accepted. Raises OSError when the port is
        taken."""
        # A second start is a no-op, as the context manager starts too.
        if self._listener is None:
            self._listener = Listener(self._port, self.api, self._tls)
            # Kept for the next start, as clients have a kubeconfig with the address.
            self._port = self._listener.port
            self._listener.begin()
        return self

    def stop(self) -> None:
        """Break every connection and stop listening; the data stays. A second time is a no-op."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.end()

    def restart(self, *, forget_history: bool = False) -> None:
        """Stop and start on the same port with the same data; with `forget_history` older
        resourceVersions answer 410.
        """
        self.stop()
        # What a real one does after five minutes, or when etcd was restored from a backup.
        if forget_history:
            self.compact()
        self.start()

    def compact(self, version: int | None = None) -> int:
        """Forget the history before `version` (by default all): lists and watches from older ones
        answer 410."""
        return self.store.compact(version)

    def __enter__(self) -> EmbeddedAPIServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- addresses

    @property
    def port(self) -> int:
        """The port; 0 before the first start unless one was given."""
        return self._port

    @property
    def url(self) -> str:
        """The server's address, for example http://127.0.0.1:40001."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    def write_kubeconfig(self, path: str | os.PathLike[str], *, token: str | None = None) -> Path:
        """Write a kubeconfig for `token` (by default the administrator's), readable by its owner
        only; returns its path.

        It needs no other file, and a file that is there already is replaced. Raises OSError.
        """
        cluster: JSON = {"server": self.url}
        if self.ca_file is not None:
            # In the file itself: the folder of the certificate goes with the server.
            cluster["certificate-authority-data"] = base64.b64encode(self.ca_file.read_bytes()).decode()
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": KUBECONFIG_NAME, "cluster": cluster}],
            "users": [{"name": KUBECONFIG_NAME, "user": {"token": token or self.token}}],
            "contexts": [{"name": KUBECONFIG_NAME, "context": {"cluster": KUBECONFIG_NAME, "user": KUBECONFIG_NAME}}],
            "current-context": KUBECONFIG_NAME,
        }
        target = Path(path)
        # The administrator's token is in it.
        write_whole(target, json.dumps(content, indent=2).encode(), 0o600)  # JSON is YAML too
        return target

    def connections(self) -> int:
        """How many connections are open."""
        return self._listener.connections() if self._listener else 0

    # -- the store, for setting up and looking

    @property
    def version(self) -> int:
        """The latest resourceVersion."""
        return self.store.version

    def create(self, obj: JSON) -> JSON:
        """Create an object as a POST would; `kind` says of which resource.

        Raises StatusError, which has `code` and `reason`: 409 AlreadyExists for a name that is
        taken (the namespaces default, kube-node-lease, kube-public and kube-system and the Service
        default/kubernetes are there from the start), 501 for a kind that is not served. As in a
        cluster a new Node gets the taint node.kubernetes.io/not-ready, also one that says that it
        is ready.
        """
        kind = self._creatable(obj.get("kind"))
        # As kubectl does for a manifest without one.
        namespace = obj.get("metadata", {}).get("namespace", "default") if kind.namespaced else ""
        return self._stored(self._operations.create(kind, namespace, obj, Options("Ignore")))

    def get(self, plural: str, name: str, namespace: str = "default") -> JSON:
        """An object, not to be changed. Raises KeyError."""
        kind = self._plural_of(plural)
        found = self.store.get(plural, kind.key(namespace, name))
        if found is None:
            raise KeyError(f"there is no {plural} {kind.key(namespace, name)}")
        return found.object

    def list(self, plural: str, namespace: str = "", *, labels: str = "", fields: str = "") -> Sequence[JSON]:
        """The objects of a resource in key order, not to be changed; in all namespaces unless one
        is named."""
        query = {"labelSelector": labels, "fieldSelector": fields}
        return [one.object for one in list_objects(self.store, self._plural_of(plural), namespace, query).items]

    def patch(
        self,
        plural: str,
        name: str,
        body: Any,
        namespace: str = "default",
        *,
        subresource: str = "",
        content_type: str = MERGE_PATCH,
    ) -> JSON:
        """Patch an object as a PATCH would. Raises StatusError."""
        kind = self._plural_of(plural)
        options = Options("Ignore", subresource)
        return self._stored(
            self._operations.patch(kind, namespace if kind.namespaced else "", name, body, content_type, options)
        )

    def delete(self, plural: str, name: str, namespace: str = "default") -> None:
        """Delete an object as a DELETE would: finalizers hold it. Raises StatusError."""
        kind = self._plural_of(plural)
        self._operations.delete(kind, namespace if kind.namespaced else "", name)

    def _creatable(self, name: object) -> Kind:
        """The resource of this `kind`."""
        found = self._by_kind.get(name) if isinstance(name, str) else None
        # Pods are listed, and never there: an object of that kind would be a guess.
        if found is None or "create" not in found.verbs:
            known = ", ".join(sorted(kind.kind for kind in self.kinds() if "create" in kind.verbs))
            raise not_implemented(f"objects of kind {name!r}; known kinds are {known}")
        return found

    def _plural_of(self, plural: str) -> Kind:
        """The resource of this name."""
        found = self._by_plural.get(plural)
        if found is None:
            known = ", ".join(sorted(self._by_plural))
            raise KeyError(f"the embedded API server serves no {plural!r}; it serves {known}")
        return found

    @staticmethod
    def _stored(outcome: Outcome) -> JSON:
        # What a DELETE removed at once is answered with a Status alone.
        assert outcome.stored is not None, "only a deletion stores nothing"
        return outcome.stored.object

    def kinds(self) -> Sequence[Kind]:
        """The resources that are served."""
        return self._router.kinds()
