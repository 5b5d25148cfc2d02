"""One OpenStack service, as this process: `python -P service.py NAME PORT FOLDER`, or its database:
`python -P service.py NAME database FOLDER`. FOLDER has its configuration.

It runs in a virtual environment where OpenStack is installed and these tests are not. So
OpenStack's modules are imported by name here. It ends when the process that started it has ended.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from importlib import import_module
from typing import Any

NOVA = {"nova-conductor": "conductor", "nova-scheduler": "scheduler", "nova-compute": "compute"}
"""Nova's parts and their topics: in one process, so that they need no message broker."""
OCTAVIA_LOOKUP = {
    "ProvisioningStatus": "PROVISIONING_STATUSES", "OperatingStatus": "OPERATING_STATUSES",
    "HealthMonitorType": "HEALTH_MONITOR_TYPES", "Algorithm": "LB_ALGORITHMS", "Protocol": "PROTOCOLS",
    "SessionPersistenceType": "SP_TYPES", "AmphoraRoles": "AMPHORA_ROLES", "LBTopology": "LB_TOPOLOGIES",
    "VRRPAuthMethod": "VRRP_AUTH", "L7RuleType": "L7RULE_TYPES", "L7RuleCompareType": "L7RULE_COMPARE_TYPES",
    "L7PolicyAction": "L7POLICY_ACTIONS", "ClientAuthenticationMode": "CLIENT_AUTH_MODES",
}  # fmt: skip
"""Octavia's tables of allowed words, and the constants that have the words."""


def main(name: str, what: str, folder: str) -> None:
    """Serves until the process ends."""
    os.environ |= {
        f"OS_{one.upper()}_CONFIG_DIR": folder for one in ("keystone", "placement", "glance", "neutron", "nova")
    }
    sys.argv = [name]
    if name in ("neutron", "octavia"):
        sys.argv += ["--config-file", f"{folder}/{name}.conf"]
    _take_turns(nested=name == "octavia")
    if what == "database":
        {"neutron": _neutron_tables, "octavia": _octavia_tables}[name](folder)
        return
    threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    application = import_module("nova.wsgi.osapi_compute" if name == "nova" else f"{name}.wsgi.api").application
    if name == "nova":
        import_module("os_vif").initialize()
        for binary, topic in NOVA.items():
            import_module("nova.service").Service.create(binary=binary, topic=topic).start()
    workers = [_octavia_worker()] if name == "octavia" else []
    serve = import_module("waitress").serve
    serve(_counted(application, name, f"{folder}/calls.jsonl"), host="127.0.0.1", port=int(what), threads=8)
    del workers


def _end_with(parent: int) -> None:
    """A test run that was killed leaves no service behind."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _counted(application: Any, name: str, path: str) -> Callable[[Any, Any], Iterator[bytes]]:
    """The application, with one line of JSON in the file for each request that it has answered."""
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)  # all services write there, each line at once

    def counted(environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        began, size, statuses = time.time(), 0, [0]
        method, where = environ["REQUEST_METHOD"], environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")

        def begin(status: str, headers: Any, *others: Any) -> Any:
            statuses.append(int(status.split()[0]))
            return start(status, headers, *others)

        body: Iterable[bytes] = application(environ, begin)
        try:
            for chunk in body:
                size += len(chunk)
                yield chunk
        finally:
            if (close := getattr(body, "close", None)) is not None:
                close()
            line = {
                "time": round(began, 3), "service": name, "method": method, "path": where,
                "query": environ.get("QUERY_STRING", ""), "status": statuses[-1], "size": size,
                "seconds": round(time.time() - began, 4), "agent": environ.get("HTTP_USER_AGENT", ""),
                "user": environ.get("HTTP_X_USER_NAME", ""),  # keystonemiddleware has put it there
            }  # fmt: skip
            os.write(out, f"{json.dumps(line)}\n".encode())

    return counted


def _take_turns(*, nested: bool) -> None:
    """A transaction waits for its turn from its begin. SQLite refuses one that has read and wants
    to write when another one has written meanwhile, and OpenStack does not try again.

    `nested`: Octavia opens a second transaction, to read a quota, inside the first one of the same
    thread, and would wait for itself. The second one begins plainly, and reads what is committed.
    """
    sqlalchemy: Any = import_module("sqlalchemy")
    engine = import_module("sqlalchemy.engine").Engine
    mine = threading.local()

    def immediately(conn: Any, cursor: Any, statement: str, parameters: Any, *others: Any) -> tuple[str, Any]:
        if statement != "BEGIN":
            return statement, parameters
        mine.open = getattr(mine, "open", set())
        if nested and mine.open - {id(conn)}:
            return statement, parameters
        mine.open.add(id(conn))
        return "BEGIN IMMEDIATE", parameters

    def ended(conn: Any) -> None:
        getattr(mine, "open", set()).discard(id(conn))

    def write_ahead(connection: Any, record: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL").close()

    sqlalchemy.event.listen(engine, "before_cursor_execute", immediately, retval=True)
    sqlalchemy.event.listen(engine, "commit", ended)
    sqlalchemy.event.listen(engine, "rollback", ended)
    if nested:
        sqlalchemy.event.listen(engine, "connect", write_ahead)


def _neutron_tables(folder: str) -> None:
    """Neutron's tables, which its migrations cannot make in SQLite; and the agent that would set up
    ports on the host. It need not run, as no packet is sent: it has reported, in the far future."""
    sqlalchemy: Any = import_module("sqlalchemy")
    import_module("neutron.common.config")
    import_module("neutron.db.migration.models.head")
    tables = import_module("neutron_lib.db.model_base").BASEV2.metadata
    engine = sqlalchemy.create_engine(f"sqlite:///{folder}/neutron.sqlite")
    tables.create_all(engine)
    reported = datetime(2100, 1, 1)  # as Neutron has them
    agent = {
        "id": "a0000000-0000-4000-8000-000000000001", "agent_type": "Open vSwitch agent", "topic": "N/A",
        "binary": "neutron-openvswitch-agent", "host": "compute-1", "admin_state_up": True, "created_at": reported,
        "started_at": reported, "heartbeat_timestamp": reported, "configurations": "{}", "load": 0,
    }  # fmt: skip
    with engine.begin() as connection:
        connection.execute(tables.tables["agents"].insert(), agent)
        # The migrations would also make these: each new group lets everything out, and each
        # project's first one everything in that comes from itself.
        for number, (direction, family) in enumerate((d, f) for d in ("egress", "ingress") for f in ("IPv4", "IPv6")):
            kind, inward = "securitygroupdefaultrules", direction == "ingress"
            standard = connection.execute(tables.tables["standardattributes"].insert(), {"resource_type": kind})
            rule = {
                "id": f"b0000000-0000-4000-8000-00000000000{number}", "direction": direction, "ethertype": family,
                "standard_attr_id": standard.inserted_primary_key[0], "remote_group_id": "PARENT" if inward else None,
                "used_in_default_sg": True, "used_in_non_default_sg": not inward,
            }  # fmt: skip
            connection.execute(tables.tables[kind].insert(), rule)


def _octavia_tables(folder: str) -> None:
    """Octavia's tables, whose migrations are for MySQL, with the words that they allow."""
    sqlalchemy: Any = import_module("sqlalchemy")
    models, constants = import_module("octavia.db.models"), import_module("octavia.common.constants")
    engine = sqlalchemy.create_engine(f"sqlite:///{folder}/octavia.sqlite")
    import_module("octavia.db.base_models").BASE.metadata.create_all(engine)
    with engine.begin() as connection:
        for model, words in OCTAVIA_LOOKUP.items():
            rows = [{"name": word} for word in getattr(constants, f"SUPPORTED_{words}")]
            connection.execute(getattr(models, model).__table__.insert(), rows)


def _octavia_worker() -> Any:
    """Octavia's controller worker, in this process as Nova's parts are. After the application is
    loaded."""
    # No configuration file can say None, and the default, 10, is no argument of SQLite's pool.
    import_module("oslo_config.cfg").CONF.set_override("pool_timeout", None, group="database")

    network_driver = import_module("octavia.common.utils").get_network_driver

    def attach(driver: Any, compute_id: str, network_id: Any, ip_address: Any, port_id: str) -> None:
        # By this Octavia knows that the port's network is there. Without it, it would plug the
        # network once more for each load balancer, and fail where no member names one.
        network_driver().network_proxy.update_port(port_id, device_id=compute_id)
        raise import_module("novaclient.exceptions").Conflict(409)

    def detach(driver: Any, compute_id: str, port_id: str) -> None:
        network_driver().network_proxy.update_port(port_id, device_id="")

    # The no-op compute would look into the database of the no-op network, which is not used here:
    # Neutron is real, and so these two do to its ports what Nova would. A conflict means that the
    # port is plugged already.
    manager = import_module("octavia.compute.drivers.noop_driver.driver").NoopManager
    manager.attach_network_or_port, manager.detach_port = attach, detach
    topic = import_module("octavia.common.constants").TOPIC_AMPHORA_V2
    target = import_module("oslo_messaging").Target(topic=topic, server="compute-1", fanout=False)
    endpoints = [import_module("octavia.controller.queue.v2.endpoints").Endpoints()]
    server = import_module("octavia.common.rpc").get_server(target, endpoints)
    server.start()
    return server


if __name__ == "__main__":
    main(*sys.argv[1:])
