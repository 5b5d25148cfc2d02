# ruff: noqa: E501 - a table
"""The 46 mistakes of a vendor's third trial: none is silent, and what says it names the cause.

Each is a replacement or two in the package that `new acme --http` writes, over its double, and is
in docs/guides/vendor-mistakes.md or in the table of scenarios. Those that no scenario can see are
said elsewhere: `ELSEWHERE` names the tests.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from attrs import frozen

from tests.integration.conformance.generated import TEXTS, said_by

API, BALANCERS = "acme_provider/api.py", "acme_provider/loadbalancer.py"
CONFIG, INSTANCES = "acme_provider/config.py", "acme_provider/instances.py"
PROVIDER, ROUTES = "acme_provider/provider.py", "acme_provider/routes.py"

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.row("P9")


@frozen
class Mistake:
    """A mistake: the file, what stood there and what stands there now, the scenario that says so,
    and a part of its words."""

    number: int
    what: str
    file: str
    changes: tuple[tuple[str, str], ...]
    scenario: str
    told: str


FIND = '        return self._client.find(Server, path_of("servers", server_id))\n'
BODY_SOURCES = "            source_ranges=frozenset(asked.source_ranges),\n"
BODY_PORTS = "            ports=frozenset(Port(protocol=p.protocol, port=p.port, target_port=p.node_port) for p in asked.ports),\n"
SETTLE = "        self.operations.settle(body.name)  # one that a former call began\n"
CREATE = "            self._api.create_route(wanted)\n"
CONNECT = "        client.use(self.endpoint, tokens, ca_file=self.ca_file)\n"
INITIALIZE = '        self._api.servers("none")\n'
MISTAKES = [
    Mistake(1, "first page of the listing only", API, (("None if page.next is None else {\"after\": page.next}", "None"),), "R19", "a page of a listing has 10"),
    Mistake(2, "any 4xx is \"not found\"", API, ((FIND, f"        try:\n    {FIND}        except Exception:\n            return None\n"),), "I14", "answered False while the cloud answered 200 with a page of HTML: it must raise"),
    Mistake(3, "ERROR or DELETING counts as gone", API, ((FIND, FIND.replace("return", "found =") + '        return None if found is None or found.status in ("error", "deleting") else found\n'),), "I15", "in the state 'error'"),
    Mistake(4, "looked up by another field", INSTANCES, (("return self._api.servers(name)", "return [one.model_copy(update={'name': one.type}) for one in self._api.servers(name)]"),), "I1", "no (machine|instance|server)|InstanceNotFound"),
    Mistake(5, "an address with /64", INSTANCES, (("address=ip) for ip in machine.private_ips", "address=f'{ip}/64') for ip in machine.private_ips"),), "I2", "/64"),
    Mistake(6, "zone and region swapped", INSTANCES, (("zone=machine.zone", "zone=machine.region"), ("region=machine.region", "region=machine.zone")), "I18", "in the cloud they are 'north-a' and 'north'"),
    Mistake(7, "answers are cached for ever", API, ((FIND, "        kept = self.__dict__.setdefault('kept', {})\n        if server_id not in kept:\n            kept[server_id] = self._client.find(Server, path_of('servers', server_id))\n        return kept[server_id]\n"),), "I4", "a deleted machine is there"),
    Mistake(8, "a token is never renewed", CONFIG, ((CONNECT, "        from cloudprovider.http import StaticToken\n\n        client.use(self.endpoint, StaticToken(tokens.fetch().text), ca_file=self.ca_file)\n"),), "G16", "after 401 get a new token"),
    Mistake(9, "401 is tried for ever", API, ((FIND, f"        while True:\n            try:\n        {FIND}            except CloudError:\n                current_call().pause(0.05)\n"), ("from pydantic import Field\n", "from cloudprovider import current_call\nfrom cloudprovider.http import CloudError\nfrom pydantic import Field\n")), "G14", "the provider still tries after"),
    Mistake(11, "429 is a plain error", API, (("        pages = self._client.pages(\n", "        try:\n            self._client.send('GET', path, fields=fields)\n        except CloudProviderError as error:\n            raise CloudProviderError(str(error)) from error\n        pages = self._client.pages(\n"), ("from pydantic import Field\n", "from cloudprovider import CloudProviderError\nfrom pydantic import Field\n")), "G13", "raise Throttled"),
    Mistake(13, "POST without looking, and 409 is \"still building\"", BALANCERS, (("        if not found:\n            self.operations.begin(body.name, self._api.create_balancer(body))\n", "        try:\n            self.operations.begin(body.name, self._api.create_balancer(body))\n        except ConflictError as error:\n            raise Pending(str(error), 0.1) from error\n        if not found:\n            pass\n"), ("import CloudError, Marks", "import CloudError, ConflictError, Marks")), "L3", "not built within 1.5 s: Pending: .*409"),
    Mistake(14, "a status without address while the cloud builds", BALANCERS, ((SETTLE, ""), ("            self.operations.begin(body.name, self._api.create_balancer(body))\n", "            self._api.create_balancer(body)\n"), ("            return _status(_built(made))\n", "            return _status(made)\n")), "L38", "a status without address while the cloud builds"),
    Mistake(15, "update drops the labels", BALANCERS, (('{**dict(found[0]), "targets"', '{**dict(found[0]), "labels": {}, "targets"'),), "L11", "does not exist"),
    Mistake(16, "no allow-list when open to all", BALANCERS, ((BODY_SOURCES, BODY_SOURCES.replace("asked.source_ranges", "r for r in asked.source_ranges if r != '0.0.0.0/0'")),), "L37", "is open to everyone"),
    Mistake(17, "the allow-list is set once", BALANCERS, (("self._api.change_balancer(_built(found[0]).id, body))\n        for", "self._api.change_balancer(_built(found[0]).id, body.model_copy(update={'source_ranges': found[0].source_ranges})))\n        for"),), "L18", "may connect; the Service allows"),
    Mistake(18, "the health check's port is ignored", BALANCERS, (("HealthCheck(path=check[0], port=check[1])", "HealthCheck(path='/', port=1)"),), "L36", "the health check asks"),
    Mistake(19, "every port is TCP", BALANCERS, ((BODY_PORTS, BODY_PORTS.replace("protocol=p.protocol", "protocol='TCP'")),), "L35", r"\(53, 'UDP', 30053\)"),
    Mistake(20, "ports are keyed by number", BALANCERS, ((BODY_PORTS, BODY_PORTS.replace("in asked.ports", "in {p.port: p for p in asked.ports}.values()")),), "L35", r"\(53, 'UDP', 30053\)"),
    Mistake(21, "deletion validates the Service", BALANCERS, (("        name = self.get_load_balancer_name(cluster_name, service)\n        found = self._found(cluster_name, service)\n        for", "        wanted(service)\n        name = self.get_load_balancer_name(cluster_name, service)\n        found = self._found(cluster_name, service)\n        for"),), "L41", "the Service can never be deleted"),
    Mistake(22, "deletion returns at 202", BALANCERS, (("            if operation := self._api.delete_balancer(balancer.id):\n                self.operations.begin(name, operation)\n        if found and self._found(cluster_name, service):\n            raise Pending(\"the cloud is still deleting the load balancer\")\n", "            self._api.delete_balancer(balancer.id)\n"),), "L39", "returned while the cloud still deletes"),
    Mistake(23, "polls with time.sleep", BALANCERS, (("        for made in self._found(cluster_name, service):\n", "        while any(one.status != 'active' for one in self._found(cluster_name, service)):\n            time.sleep(0.1)\n        for made in self._found(cluster_name, service):\n"), ("            self.operations.begin(body.name, self._api.create_balancer(body))\n", "            self._api.create_balancer(body)\n"), ("from collections.abc import Sequence\n", "import time\nfrom collections.abc import Sequence\n")), "L38", "while the cloud builds, which is told as a failure"),
    Mistake(24, "known from memory only", BALANCERS, (("        name = self.get_load_balancer_name(cluster_name, service)\n        listed", "        name = self.get_load_balancer_name(cluster_name, service)\n        known = self.__dict__.setdefault('known', set())\n        if name not in known:\n            known.add(name)\n            return []\n        listed"),), "L16", "after a restart get_load_balancer answers None"),
    Mistake(25, "a full route table is passed over", ROUTES, ((CREATE, f"            try:\n    {CREATE}            except Exception:\n                pass\n"),), "R23", "although the route table is full"),
    Mistake(27, "a stopped machine's route is a blackhole", ROUTES, (("known = {server.id for server in self._api.servers()}", "known = {server.id for server in self._api.servers() if server.status == 'running'}"), (" and self._api.server(route.server_id) is None", "")), "R22", "the host would delete it"),
    Mistake(28, "the route's target is the cloud's name", ROUTES, (("                target_provider_id=self._instances.provider_id(route.server_id),\n", ""), ('target_node=""', "target_node=f'server-{route.server_id}'")), "R1", "is listed with the target"),
    Mistake(30, "the secret is a str, in the repr", PROVIDER, (("    @override\n    def provider_name", "    def __repr__(self) -> str:\n        return f'Cloud({self._config.client_secret.get_secret_value()})'\n\n    @override\n    def provider_name"),), "G7", "the repr of AcmeCloud shows secret number 1"),
    Mistake(31, "a thread without end", PROVIDER, ((INITIALIZE, f"        import threading\n\n        threading.Thread(target=stop.__class__().wait, args=(4.0,), name='poller').start()\n{INITIALIZE}"),), "G11", "started the threads poller"),
    Mistake(32, "a signal handler of its own", PROVIDER, ((INITIALIZE, f"        import signal\n\n        signal.signal(signal.SIGTERM, lambda *_: None)\n{INITIALIZE}"),), "G15", r"signal.signal\(SIGTERM\)"),
    Mistake(34, "the time limit of all sockets", PROVIDER, ((INITIALIZE, f"        import socket\n\n        socket.setdefaulttimeout(60.0)\n{INITIALIZE}"),), "G15", "socket.setdefaulttimeout"),
    Mistake(35, "every failure is InvalidService", BALANCERS, (("        asked = wanted(service)\n", "        asked = wanted(service)\n        try:\n            self._api.balancers()\n        except CloudProviderError as error:\n            raise InvalidService(str(error)) from error\n"), ("import CloudProviderError, LoadBalancer", "import CloudProviderError, InvalidService, LoadBalancer")), "L34", "InvalidService blames the Service"),
    Mistake(36, "the first of several machines of one name", INSTANCES, (("return self._api.servers(name)", "return list({one.name: one for one in self._api.servers(name)}.values())"),), "I17", "by chance"),
    Mistake(37, "names are compared by prefix", INSTANCES, (("return self._api.servers(name)", "return [one.model_copy(update={'name': name}) for one in self._api.servers() if one.name.startswith(name)]"),), "I16", "compare whole names"),
    Mistake(38, "a provider ID of None", INSTANCES, (("self.provider_id(machine.id)", "f'acme://{None}'"),), "I1", "is 'acme://None', made of a value that is not there"),
    Mistake(43, "exists = False on any error", INSTANCES, (("    @override\n    def state", "    @override\n    def instance_exists(self, node):\n        try:\n            return super().instance_exists(node)\n        except Exception:\n            return False\n\n    @override\n    def state"),), "I8", "answered False while the cloud could not answer"),
]  # fmt: skip
ELSEWHERE = {
    10: "tests/unit/cloudprovider/http/test_tokens.py",  # a client's secret that is wrong
    12: "tests/unit/runtime/queue/test_worker_settling.py",  # RetryError with 0 seconds
    26: "tests/unit/route/test_quota.py",  # a full route table that is told
    29: "tests/unit/conformance/mutants/others.py",  # names in upper case: R1, R5
    33: "tests/unit/cloudcalls/test_gateway.py",  # sys.exit in a client
    39: "tests/unit/cloudprovider/test_errors.py",  # InvalidService([...])
    40: "tests/unit/cloudprovider/test_errors.py",  # Throttled(5.0)
    41: "tests/unit/cloudprovider/test_annotations.py",  # a default of another type
    42: "tests/unit/cloudprovider/test_annotations.py",  # a prefix without slash, a kind that is a type
    44: "tests/unit/cloudprovider/test_commands.py",  # the entry-point group misspelt
    45: "tests/unit/cloudprovider/test_commands.py",  # an SDK outside the range
    46: "tests/unit/cli/test_vendor_mistakes.py",  # several mistakes in the configuration
}
"""The tests of those that no scenario can see, or that were told well before."""


def test_every_mistake_has_its_test() -> None:
    told = {mistake.number for mistake in MISTAKES} | set(ELSEWHERE)
    assert told == set(range(1, 47))
    assert all((ROOT / path).is_file() for path in ELSEWHERE.values())


def with_mistake(mistake: Mistake) -> dict[str, str]:
    text = TEXTS[mistake.file]
    for old, new in mistake.changes:
        assert text.count(old) == 1, f"{mistake.what}: {old!r} is {text.count(old)} times in {mistake.file}"
        text = text.replace(old, new)
    return {**TEXTS, mistake.file: text}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: f"{one.number}-{one.scenario}")
def test_a_mistake_is_told(mistake: Mistake, tmp_path: Path) -> None:
    told = said_by(tmp_path, with_mistake(mistake), mistake.scenario)
    assert told, "silent"
    assert re.search(mistake.told, told, re.DOTALL), told


@pytest.mark.parametrize("scenario", sorted({mistake.scenario for mistake in MISTAKES}))
def test_without_a_mistake_nothing_is_told(scenario: str, tmp_path: Path) -> None:
    assert said_by(tmp_path, dict(TEXTS), scenario) == ""
