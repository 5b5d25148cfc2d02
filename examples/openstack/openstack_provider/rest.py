"""Single requests to Nova, Neutron and Octavia, as JSON. Raises what openstacksdk raises.

openstacksdk's own objects would ask for more than is needed, and leave out what they do not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import requests
from keystoneauth1.adapter import Adapter
from openstack.exceptions import HttpException, SDKException, raise_from_response

JSON = dict[str, Any]
BALANCERS: Final = "/lbaas/loadbalancers"


def ask(
    service: Adapter, method: str, path: str, *, query: Iterable[tuple[str, str]] = (),
    body: Mapping[str, Any] | None = None, revision: int | None = None, microversion: str | None = None,
) -> JSON:  # fmt: skip
    """One request; the answer's body. With a revision, Neutron refuses (412) where the thing has
    another one by now."""
    headers = {} if revision is None else {"If-Match": f"revision_number={revision}"}
    answer = service.request(
        path, method, params=list(query), json=body, headers=headers, microversion=microversion, raise_exc=False
    )
    if answer.status_code == 404 and not _document(answer):
        # Not a service's word that something is gone: a proxy's, which did not find the service.
        raise HttpException("no service of OpenStack answered", response=answer, details=answer.text)
    raise_from_response(answer)
    found = _document(answer)
    if found is None and answer.content:
        raise SDKException(f"{method} {path} answered {answer.status_code}, and no JSON: look for a proxy in between")
    return _Answer(found or {})


class _Answer(JSON):
    """An answer's body, where a key that must be there is asked for."""

    def __missing__(self, key: str) -> Any:
        raise SDKException(f"an answer of OpenStack has no {key!r}, but {', '.join(self) or 'nothing'}")


def _document(answer: requests.Response) -> JSON | None:
    """None of an answer that is no JSON object."""
    try:
        found = answer.json()
    except ValueError:
        return None
    return cast("JSON", found) if isinstance(found, dict) else None


def listed(
    service: Adapter, path: str, key: str, query: Iterable[tuple[str, str]] = (), *, microversion: str | None = None
) -> list[JSON]:
    """All pages of a listing. By markers: behind a proxy the links of the services may lead
    elsewhere. openstacksdk's own lists ask for one more page at the end of each."""
    found: list[JSON] = []
    asked = list(query)
    more = asked
    while True:
        answer = ask(service, "GET", path, query=more, microversion=microversion)
        found += answer[key]
        if not answer[key] or all(link["rel"] != "next" for link in answer.get(f"{key}_links") or ()):
            return found
        more = [*asked, ("marker", answer[key][-1]["id"])]
