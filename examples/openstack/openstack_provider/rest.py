"""Single requests to Octavia and Neutron, as JSON. Raises what openstacksdk raises.

openstacksdk's own objects would ask for more than is needed, and leave out what they do not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from keystoneauth1.adapter import Adapter
from openstack.exceptions import raise_from_response

JSON = dict[str, Any]
BALANCERS: Final = "/lbaas/loadbalancers"


def ask(
    service: Adapter, method: str, path: str, *, query: Iterable[tuple[str, str]] = (),
    body: Mapping[str, Any] | None = None, revision: int | None = None,
) -> JSON:  # fmt: skip
    """One request; the answer's body. With a revision, Neutron refuses (412) where the thing has
    another one by now."""
    headers = {} if revision is None else {"If-Match": f"revision_number={revision}"}
    answer = service.request(path, method, params=list(query), json=body, headers=headers, raise_exc=False)
    raise_from_response(answer)
    found: JSON = answer.json() if answer.content else {}
    return found


def listed(service: Adapter, path: str, key: str, query: Iterable[tuple[str, str]] = ()) -> list[JSON]:
    """All pages of a listing."""
    found: list[JSON] = []
    answer = ask(service, "GET", path, query=query)
    while True:
        found += answer[key]
        following = [link["href"] for link in answer.get(f"{key}_links") or () if link["rel"] == "next"]
        if not following or not answer[key]:
            return found
        answer = ask(service, "GET", following[0])
