"""OpenStack in this process, for tests without the services: Keystone, Nova, Neutron and Octavia,
as far as a provider asks them, with the answers recorded from the real ones (`recorded.json`).

    with served() as cloud:               # has what the services' lab has:
        cloud.auth_url, cloud.user, ...   # password, project, region, application_credential_id
        cloud.network, cloud.router, ...  # subnet, external, external_subnet, project_id
        cloud.create_server("node-1")     # its ID; delete_server; nova.set_state(ID, "SHUTOFF")
        cloud.counts(since)               # requests without IDs; `since`: a length of `requests`
        with cloud.exhausted(): ...       # no quota
        cloud.octavia.polls = 3           # reads until a load balancer is ACTIVE; held: never
        cloud.octavia.outcome = "ERROR"   # what it becomes
        cloud.answers["PUT neutron /v2.0/routers"] = (503, {})  # in place of the answer
        cloud.end_tokens()                # 401 until the next login

What is never asked by the provider is not here: it gets a 501. `test_openstack_double.py` proves
that statuses and shapes agree with the recording.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from attrs import define, field
from doublebase import Query, Refused, answer, new_id, refuse
from neutrondouble import Neutron
from novadouble import Nova
from octaviadouble import Octavia

_ID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_TYPES = {"compute": "nova", "network": "neutron", "load-balancer": "octavia", "identity": "keystone"}


@define
class Double:
    """The cloud. Its parts may be looked at and changed while nobody asks."""

    base: str = ""
    user: str = "ccm"
    password: str = "s3cret-of-the-double-93d1"
    project: str = "ccm"
    region: str = "RegionOne"
    application_credential_id: str = "2e0fd3a5c7b94d0f8e6a1b2c3d4e5f60"
    application_credential_secret: str = "s3cret-of-the-credential-7b20"
    delay: float = 0.0
    """Seconds before each answer."""
    lifetime: float = 3600.0
    """Of a token, in seconds."""
    neutron: Neutron = field(factory=Neutron)
    nova: Nova = field(factory=Nova)
    octavia: Octavia = field()
    answers: dict[str, tuple[int, Any]] = field(factory=dict)
    """Answers in place of the cloud's own, by the beginning of "METHOD service path?query"."""
    requests: list[str] = field(factory=list)
    """"GET nova /v2.1/servers/detail?limit=1000", in order."""
    tokens: set[str] = field(factory=set)
    lock: threading.RLock = field(factory=threading.RLock, repr=False)
    project_id: str = field(init=False)
    network: str = field(init=False)
    subnet: str = field(init=False)
    external: str = field(init=False)
    external_subnet: str = field(init=False)
    router: str = field(init=False)

    @octavia.default
    def _octavia(self) -> Octavia:
        return Octavia(self.neutron)

    def __attrs_post_init__(self) -> None:
        for name, key in self.neutron.ids.items():
            setattr(self, name, key)

    @property
    def auth_url(self) -> str:
        """Keystone's, with the version."""
        return f"{self.url('keystone')}/v3"

    def url(self, service: str) -> str:
        """Where the service is: "nova" for example."""
        return f"{self.base}/{service}"

    def create_server(self, name: str) -> str:
        """A server that is active; its ID."""
        with self.lock:
            port = self.neutron.create_port(self.subnet)
            server = self.nova.create(name, port["fixed_ips"][0]["ip_address"], port["mac_address"])
            port["device_id"] = server["id"]
        return str(server["id"])

    def delete_server(self, server: str) -> None:
        """It is gone, with its ports."""
        with self.lock:
            self.nova.servers.pop(server, None)
            for port in [key for key, one in self.neutron.things["ports"].items() if one["device_id"] == server]:
                self.neutron.delete_port(port)

    def ask(self, method: str, service: str, path: str, json: Any = None) -> Any:
        """The answer's document, as by a request that nobody counts."""
        parts = urlsplit(path)
        query = parse_qs(parts.query, keep_blank_values=True)
        with self.lock:
            return self._part(service, method, parts.path, query, {}, json)[1]

    def counts(self, since: int = 0) -> Counter[str]:
        """How often what was asked, without IDs and queries: "neutron GET /v2.0/ports"."""
        asked = (line.partition("?")[0].split(" ", 2) for line in self.requests[since:])
        return Counter(f"{service} {method} {_ID.sub('ID', path)}" for method, service, path in asked)

    def end_tokens(self) -> None:
        """No token is accepted any more that was given out until now."""
        self.tokens.clear()

    @contextmanager
    def exhausted(self) -> Iterator[None]:
        """No quota is left for anything, for the body of a with statement."""
        self.neutron.exhausted = self.octavia.exhausted = True
        try:
            yield
        finally:
            self.neutron.exhausted = self.octavia.exhausted = False

    def answer(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, document, headers."""
        parts = urlsplit(target)
        service, _, path = parts.path.lstrip("/").partition("/")
        query = parse_qs(parts.query, keep_blank_values=True)
        with self.lock:
            asked = f"{method} {service} /{path}{f'?{parts.query}' if parts.query else ''}"
            self.requests.append(asked)
            for beginning, (status, document) in self.answers.items():
                if asked.startswith(beginning):
                    return status, document, {}
            try:
                return self._service(service, method, f"/{path}", query, headers, json.loads(body) if body else None)
            except Refused as refused:
                return refused.status, refused.document, {}

    def _service(
        self, service: str, method: str, path: str, query: Query, headers: Mapping[str, str], body: Any
    ) -> tuple[int, Any, dict[str, str]]:
        if service == "keystone":
            return self._keystone(method, path, body)
        versions = (service != "nova" and path == "/") or path.rstrip("/") == "/v2.1"  # for everyone to see
        if not versions and headers.get("X-Auth-Token") not in self.tokens:
            raise refuse("nova without a token")
        return *self._part(service, method, path, query, headers, body), {}

    def _part(
        self, service: str, method: str, path: str, query: Query, headers: Mapping[str, str], body: Any
    ) -> tuple[int, Any]:
        if service == "neutron":
            return self.neutron.answer(method, path, query, body, headers)
        if service == "nova":
            return self.nova.answer(method, path, query, body)
        return self.octavia.answer(method, path, query, body)

    def _keystone(self, method: str, path: str, body: Any) -> tuple[int, Any, dict[str, str]]:
        if path.rstrip("/") in ("/v3", ""):
            version = answer("keystone versions")
            return (200, version, {}) if path != "/" else (300, {"versions": {"values": [version["version"]]}}, {})
        if (method, path) != ("POST", "/v3/auth/tokens"):
            raise Refused(501, {"error": {"code": 501, "message": f"the double has no {method} {path}"}})
        identity, scope = body["auth"]["identity"], body["auth"].get("scope", {})
        if not (self._has_password(identity, scope) or self._has_credential(identity)):
            raise refuse("wrong password")
        document = answer("login")
        token = document["token"]
        token["project"] |= {"id": self.project_id, "name": self.project}
        token |= {"methods": identity["methods"], "issued_at": _moment(0), "expires_at": _moment(self.lifetime)}
        for entry in token["catalog"]:
            service = _TYPES.get(entry["type"], entry["type"])
            for endpoint in entry["endpoints"]:
                endpoint["url"] = endpoint["url"].replace("http://cloud", self.url(service))
        text = f"gAAAA{new_id()}"
        self.tokens.add(text)
        return 201, document, {"X-Subject-Token": text}

    def _has_password(self, identity: Any, scope: Any) -> bool:
        user, project = identity.get("password", {}).get("user", {}), scope.get("project", {})
        place = project.get("name") == self.project or project.get("id") == self.project_id
        return (user.get("name"), user.get("password")) == (self.user, self.password) and place

    def _has_credential(self, identity: Any) -> bool:
        given = identity.get("application_credential", {})
        known = (self.application_credential_id, self.application_credential_secret)
        return (given.get("id"), given.get("secret")) == known


def _moment(later: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() + later))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet
    cloud: Double

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, document, headers = self.cloud.answer(self.command, self.path, dict(self.headers.items()), body)
        if self.cloud.delay:
            time.sleep(self.cloud.delay)
        service = self.path.lstrip("/").partition("/")[0]
        page = isinstance(document, str)  # a proxy's
        text = str(document) if page else "" if document is None else json.dumps(document)
        content = text.replace("http://cloud", self.cloud.url(service)).encode()
        self.send_response(status)
        kind = "text/html" if page else "application/json"
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _any  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it: `requests` has them."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 100


@contextmanager
def served(cloud: Double | None = None) -> Iterator[Double]:
    """The double at a port of the loopback."""
    cloud = cloud or Double()
    handler = type("_Handler", (_Handler,), {"cloud": cloud})
    with _Server(("127.0.0.1", 0), handler) as server:
        cloud.base = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield cloud
        finally:
            server.shutdown()
            thread.join()
