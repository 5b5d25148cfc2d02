"""ssh-key-controller in the manager: its permissions and its entry. Flags: `options.py`.

Off by default: in Go it was part of kube-apiserver, and is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from controllers.registration.common import event_rule, nodes, warn_off
from controllers.registration.entry import Context, Controller, ControllerEntry, Rule
from controllers.sshkeys.options import SSHKeyOptions

if TYPE_CHECKING:
    from controllers.registration.plan import PlannedCalls, Planning

log = logging.getLogger(__name__)

NAME = "ssh-key-controller"


def _problems(values: Mapping[str, Any]) -> list[str]:
    from controllers.sshkeys.keyfile import KeyFile, KeyFileProblems

    missing = [f"--{flag}: {NAME} needs it" for flag in ("ssh-user", "ssh-keyfile") if not values[flag]]
    path = values["ssh-keyfile"]
    if path:
        try:
            KeyFile(path)
        except KeyFileProblems as error:
            return [*missing, *(f"--ssh-keyfile={path}: {problem}" for problem in error.problems)]
    return missing


def _construct(context: Context) -> Controller | None:
    from controllers.sshkeys.controller import SSHKeyController

    if context.cloud.ssh_keys is None:
        warn_off(log, NAME, context, "installs no SSH keys", named=True)
        return None
    return context.build(SSHKeyController, SSHKeyOptions)


def _planned_calls(planning: Planning) -> PlannedCalls:
    """One row for each key, shown by its fingerprint: no key material is printed."""
    from cloudprovider.helpers import parse_ssh_public_key
    from controllers.registration.plan import Change, PlannedCalls, Row, Subject

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


ENTRY = ControllerEntry(
    name=NAME,
    aliases=("ssh-key",),
    construct=_construct,
    planned_calls=_planned_calls,
    problems=_problems,
    module="controllers.sshkeys.controller",
    informers=nodes,
    options=(SSHKeyOptions,),
    on_by_default=False,
    rules=(
        Rule(resource="nodes", verbs=("list", "watch"), consequence="machines that join get no SSH keys for an hour"),
        event_rule("no Event says which SSH keys could not be installed"),
    ),
)
