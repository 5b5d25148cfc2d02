"""What the ssh-key controller's calls would do, as rows of a plan."""

from __future__ import annotations

from cloudprovider.helpers import parse_ssh_public_key
from controllers.registration.plan import Change, PlannedCalls, Planning, Row, Subject


def planned_calls(planning: Planning) -> PlannedCalls:
    """One row for each key, shown by its fingerprint: no key material is printed."""

    def add(_key: str, user: str, key_data: bytes) -> None:
        try:
            fingerprint = parse_ssh_public_key(key_data).fingerprint
        except ValueError:
            fingerprint = "(none: it is no public key)"
        planning.record(
            Row(
                controller="ssh-key-controller",
                subject=Subject("SSHKey", fingerprint),
                action="add SSH key",
                changes=(Change("user", None, user),),
                note="may change nothing: only the provider knows",
                certain=False,
            )
        )

    return PlannedCalls(writes={"add_ssh_key_to_all_instances": add})
