"""Nova in the double: servers."""

from __future__ import annotations

import re
from typing import Any

from attrs import define, field
from doublebase import Query, Record, Refused, answer, like, listed, new_id, one, refuse

STATES = {
    "ACTIVE": ("active", 1), "SHUTOFF": ("stopped", 4), "BUILD": ("building", 0), "ERROR": ("error", 0),
    "PAUSED": ("paused", 3), "SUSPENDED": ("suspended", 4), "RESCUE": ("rescued", 1), "SHELVED": ("shelved", 4),
    "SHELVED_OFFLOADED": ("shelved_offloaded", 4), "SOFT_DELETED": ("soft-delete", 4), "REBOOT": ("active", 1),
    "VERIFY_RESIZE": ("resized", 1), "MIGRATING": ("active", 1), "UNKNOWN": ("active", 1),
}  # fmt: skip
"""vm_state and power_state, by status."""


@define
class Nova:
    """Servers, newest first as Nova lists them."""

    servers: dict[str, Record] = field(factory=dict)
    hidden: set[str] = field(factory=set)
    """IDs that listings leave out."""
    page: int = 1000
    """The most servers on a page."""

    def create(self, name: str, address: str, mac: str) -> Record:
        """A server that is active."""
        made = one("server")
        made |= {"id": new_id(), "name": name, "OS-EXT-SRV-ATTR:hostname": name}
        made["addresses"]["nodes"][0] |= {"addr": address, "OS-EXT-IPS-MAC:mac_addr": mac}
        root = "http://cloud/v2.1/servers"
        made["links"] = [{"rel": "self", "href": f"{root}/{made['id']}"}, made["links"][1]]
        self.servers[made["id"]] = made
        return made

    def set_state(self, server: str, status: str) -> None:
        """Bring it into one of `STATES`."""
        vm_state, power = STATES[status]
        self.servers[server] |= {"status": status, "OS-EXT-STS:vm_state": vm_state, "OS-EXT-STS:power_state": power}

    def answer(self, method: str, path: str, query: Query, body: Any) -> tuple[int, Any]:
        """Status and document."""
        if path.rstrip("/") == "/v2.1":
            return 200, answer("nova versions")
        if method == "GET" and path in ("/v2.1/servers", "/v2.1/servers/detail"):
            return 200, self._listing(path, query)
        if (found := re.fullmatch(r"/v2\.1/servers/([^/]+)", path)) is not None and method == "GET":
            if (server := self.servers.get(found[1])) is None:
                raise refuse("no server", message=f"Instance {found[1]} could not be found.")
            return 200, {"server": server}
        if method == "GET" and path == "/v2.1/flavors/detail":
            return 200, {"flavors": []}
        raise Refused(501, {"computeFault": {"code": 501, "message": f"the double has no {method} {path}"}})

    def _listing(self, path: str, query: Query) -> Record:
        for pattern in query.get("name", []):
            try:
                re.compile(pattern)
            except re.error:
                message = f"Invalid input for query parameters name. Value: {pattern}. {pattern!r} is not a 'regex'"
                raise refuse("wrong filter", message=message) from None
        limit = min(int(query.get("limit", ["1000"])[0]), self.page)
        things = [one for one in reversed(self.servers.values()) if one["id"] not in self.hidden]
        filters = {
            "name": lambda thing, wanted: any(re.search(text, thing.get("name", "")) for text in wanted),
            "changes-since": lambda thing, wanted: True,
            "uuid": lambda thing, wanted: thing["id"] == wanted[-1],  # Nova answers for one of many
        }
        asked = {**query, "limit": [str(limit)]}
        found, full, _ = listed(things, asked, lambda key: _wrong(key, query), filters)
        template = one("servers" if path.endswith("detail") else "server names")
        document: Record = {"servers": [like(thing, template) for thing in found]}
        if full:
            given = "".join(f"{key}={value}&" for key, values in query.items() if key != "marker" for value in values)
            href = f"http://cloud{path}?{given}marker={found[-1]['id']}"
            document["servers_links"] = [{"rel": "next", "href": href}]
        return document


def _wrong(key: str, query: Query) -> Refused:
    if key == "marker":
        return refuse("wrong marker", message=f"marker [{query['marker'][0]}] not found")
    return refuse("wrong filter", message=f"Additional properties are not allowed ({key!r} was unexpected)")
