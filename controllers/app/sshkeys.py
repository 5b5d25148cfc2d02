"""ssh-key-controller in the manager: its rights and its entry. Its flags: `controllers/sshkeys/options.py`.

Stage: before the first one. Off by default: in Go it was part of kube-apiserver, and is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from controllers.app.entry import Context, Controller, ControllerEntry, Rule
from controllers.sshkeys.options import SSHKeyOptions

if TYPE_CHECKING:
    from controllers.runtime.cache import Resource

log = logging.getLogger(__name__)

NAME = "ssh-key-controller"


def _problems(values: Mapping[str, Any]) -> list[str]:
    from controllers.sshkeys.changes import KeyFileProblems
    from controllers.sshkeys.keyfile import KeyFile

    missing = [f"--{flag}: {NAME} needs it" for flag in ("ssh-user", "ssh-keyfile") if not values[flag]]
    path = values["ssh-keyfile"]
    if path:
        try:
            KeyFile(path)
        except KeyFileProblems as error:
            return [*missing, *(f"--ssh-keyfile={path}: {problem}" for problem in error.problems)]
    return missing


def _construct(context: Context) -> Controller | None:
    from controllers.sshkeys import SSHKeyController

    if context.cloud.ssh_keys is None:
        log.warning(
            "%s is off, although --controllers names it: provider %s installs no SSH keys",
            NAME,
            context.cloud.provider_name,
        )
        return None
    return context.build(SSHKeyController, SSHKeyOptions)


def _informers() -> Iterable[Resource[Any]]:
    from controllers.runtime.cache import NODES

    return (NODES,)


ENTRY = ControllerEntry(
    name=NAME,
    aliases=("ssh-key",),
    construct=_construct,
    problems=_problems,
    module="controllers.sshkeys.controller",
    informers=_informers,
    options=(SSHKeyOptions,),
    on_by_default=False,
    rules=(
        Rule(resource="nodes", verbs=("list", "watch"), consequence="machines that join get no SSH keys for an hour"),
        Rule(
            resource="events",
            verbs=("create", "patch"),
            consequence="no Event says which SSH keys could not be installed",
            namespace="default",
        ),
    ),
)
