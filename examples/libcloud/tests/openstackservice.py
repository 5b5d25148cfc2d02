"""One OpenStack service, as this process: `python openstackservice.py NAME PORT FOLDER`, or its
database: `python openstackservice.py NAME database FOLDER`. FOLDER has its configuration.

It runs in the virtual environment of `OPENSTACK_VENV`, where OpenStack is installed and these tests
are not. So OpenStack's modules are imported by name here.
"""

from __future__ import annotations

import os
import sys
from datetime import datetime
from importlib import import_module
from typing import Any

NOVA = {"nova-conductor": "conductor", "nova-scheduler": "scheduler", "nova-compute": "compute"}
"""Nova's parts and their topics: in one process, so that they need no message broker."""


def main(name: str, what: str, folder: str) -> None:
    """Serves until the process ends."""
    os.environ |= {
        f"OS_{one.upper()}_CONFIG_DIR": folder for one in ("keystone", "placement", "glance", "neutron", "nova")
    }
    sys.argv = [name]
    if name == "neutron":
        sys.argv += ["--config-file", f"{folder}/neutron.conf"]
    _take_turns()
    if what == "database":
        _neutron_tables(folder)
        return
    application = import_module("nova.wsgi.osapi_compute" if name == "nova" else f"{name}.wsgi.api").application
    if name == "nova":
        import_module("os_vif").initialize()
        for binary, topic in NOVA.items():
            import_module("nova.service").Service.create(binary=binary, topic=topic).start()
    import_module("waitress").serve(application, host="127.0.0.1", port=int(what), threads=8)


def _take_turns() -> None:
    """A transaction waits for its turn from its begin. SQLite refuses one that has read and wants
    to write when another one has written meanwhile, and OpenStack does not try again."""
    sqlalchemy: Any = import_module("sqlalchemy")

    def immediately(conn: Any, cursor: Any, statement: str, parameters: Any, *others: Any) -> tuple[str, Any]:
        return ("BEGIN IMMEDIATE" if statement == "BEGIN" else statement), parameters

    sqlalchemy.event.listen(
        import_module("sqlalchemy.engine").Engine, "before_cursor_execute", immediately, retval=True
    )


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


if __name__ == "__main__":
    main(*sys.argv[1:])
