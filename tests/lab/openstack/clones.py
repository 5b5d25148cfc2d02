"""More servers in no time: rows of the databases, copied from one server that was really made.

Nova's fake hypervisor takes 3 s for a server, and its scheduler counts all of them again for each.
The copies have ports and addresses; every API answers for them as for its own.
"""

from __future__ import annotations

import ipaddress
import re
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from attrs import frozen

_DATABASES = ("nova", "nova_api", "neutron")


@frozen
class _Row:
    database: str
    table: str
    columns: dict[str, Any]
    numbered: bool
    """Its ID is a number that the database gives."""


def clone(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Servers of these names; their IDs. All of them are there, or none of one database."""
    with ExitStack() as stack:
        opened = {
            name: stack.enter_context(closing(sqlite3.connect(folder / f"{name}.sqlite", timeout=60)))
            for name in _DATABASES
        }
        for database in opened.values():
            database.row_factory = sqlite3.Row
            database.execute("begin immediate")  # the services wait for their turn meanwhile
        made = _clone(opened, names)
        for database in opened.values():
            database.commit()
    return made


def _clone(opened: dict[str, sqlite3.Connection], names: Sequence[str]) -> dict[str, str]:
    neutron = opened["neutron"]
    server = _one(
        opened["nova"],
        "select uuid, display_name from instances where vm_state = 'active' and deleted = 0 order by id limit 1",
    )
    port = _one(neutron, "select id, mac_address, standard_attr_id from ports where device_id = ?", server["uuid"])
    address = _one(neutron, "select ip_address, subnet_id from ipallocations where port_id = ?", port["id"])
    standard = dict(_one(neutron, "select * from standardattributes where id = ?", port["standard_attr_id"]))
    del standard["id"]
    # The tables that others refer to come first.
    rows = [
        *_rows(opened, "nova", "instances", "uuid", server["uuid"]),
        *_rows(opened, "neutron", "ports", "id", port["id"]),
        *(row for name in ("nova", "nova_api") for row in _referring(opened, name, "instance_uuid", server["uuid"])),
        *_referring(opened, "neutron", "port_id", port["id"]),
    ]
    addresses, hardware = _free_addresses(neutron, address["subnet_id"]), _free_hardware(neutron)
    made = {}
    for name in names:
        made[name] = str(uuid.uuid4())
        new = {
            server["uuid"]: made[name], port["id"]: str(uuid.uuid4()), server["display_name"]: name,
            address["ip_address"]: next(addresses), port["mac_address"]: next(hardware),
        }  # fmt: skip
        words = sorted(new, key=len, reverse=True)
        pattern = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, words))})(?![\w.-])")
        for row in rows:
            columns = dict(row.columns)
            for column, value in columns.items():
                if isinstance(value, str):
                    columns[column] = "".join(new.get(part, part) for part in pattern.split(value))
            if row.numbered:
                del columns["id"]
            if row.table == "ports":
                columns["standard_attr_id"] = _insert(neutron, "standardattributes", standard)
            if columns.get("uuid") == row.columns.get("uuid"):  # of a row that has an ID of its own
                columns |= {"uuid": str(uuid.uuid4())} if "uuid" in columns else {}
            _insert(opened[row.database], row.table, columns)
    return made


def _one(database: sqlite3.Connection, query: str, *values: object) -> sqlite3.Row:
    found = database.execute(query, values).fetchone()
    assert found is not None, f"nothing to copy: create a server first ({query} {values})"
    return found  # type: ignore[no-any-return]


def _insert(database: sqlite3.Connection, table: str, columns: dict[str, Any]) -> int | None:
    marks = ", ".join("?" for _ in columns)
    return database.execute(
        f"insert into {table} ({', '.join(columns)}) values ({marks})", (*columns.values(),)
    ).lastrowid


def _rows(opened: dict[str, sqlite3.Connection], database: str, table: str, key: str, value: str) -> Iterator[_Row]:
    kinds = {row["name"]: row for row in opened[database].execute(f"pragma table_info({table})")}
    if key not in kinds:
        return
    numbered = "id" in kinds and bool(kinds["id"]["pk"]) and "INT" in kinds["id"]["type"].upper()
    for row in opened[database].execute(f"select * from {table} where {key} = ?", (value,)).fetchall():
        yield _Row(database, table, dict(row), numbered)


def _referring(opened: dict[str, sqlite3.Connection], database: str, key: str, value: str) -> Iterator[_Row]:
    tables = opened[database].execute("select name from sqlite_master where type = 'table'").fetchall()
    for table in tables:
        yield from _rows(opened, database, table["name"], key, value)


def _free_addresses(neutron: sqlite3.Connection, subnet: str) -> Iterator[str]:
    used = {row["ip_address"] for row in neutron.execute("select ip_address from ipallocations")}
    network = ipaddress.ip_network(_one(neutron, "select cidr from subnets where id = ?", subnet)["cidr"])
    return (str(host) for host in list(network.hosts())[10:] if str(host) not in used)


def _free_hardware(neutron: sqlite3.Connection) -> Iterator[str]:
    used = {row["mac_address"] for row in neutron.execute("select mac_address from ports")}
    every = ("fa:16:3f:" + ":".join(re.findall("..", f"{number:06x}")) for number in range(1 << 24))
    return (one for one in every if one not in used)
