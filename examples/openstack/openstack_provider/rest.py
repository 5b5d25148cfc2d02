"""Single requests to Octavia and Neutron, as JSON. Raises the contract's errors for what asking
again changes or cannot change, else what openstacksdk raises.

openstacksdk's own objects would ask for more than is needed, and leave out what they do not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from keystoneauth1.adapter import Adapter
from openstack.exceptions import ConflictException, ForbiddenException, raise_from_response

from cloudprovider import Pending, QuotaExceeded

JSON = dict[str, Any]
BUSY_SECONDS: Final = 2.0
"""Until a load balancer that carries out a change is looked at again."""
_QUOTA: Final = ("quota", "no more ip addresses available")


def ask(
    service: Adapter, method: str, path: str, *, query: Iterable[tuple[str, str]] = (),
    body: Mapping[str, Any] | None = None, revision: int | None = None,
) -> JSON:  # fmt: skip
    """One request; the answer's body. With a revision, Neutron refuses (412) where the thing has
    another one by now.

    Raises `QuotaExceeded`, and `Pending` where Octavia is at work on the load balancer.
    """
    headers = {} if revision is None else {"If-Match": f"revision_number={revision}"}
    answer = service.request(path, method, params=list(query), json=body, headers=headers, raise_exc=False)
    try:
        raise_from_response(answer)
    except (ConflictException, ForbiddenException) as error:
        told = " ".join(str(error.details or error).split())
        if any(word in told.lower() for word in _QUOTA):
            raise QuotaExceeded(f"{told} ({method} {path})") from error
        if isinstance(error, ConflictException) and "immutable" in told:
            raise Pending(f"Octavia is at work: {told}", BUSY_SECONDS) from error
        raise
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
