"""ssh-key-controller in the manager: its permissions and its entry. Flags: `options.py`.

Off by default: in Go it was part of kube-apiserver, and is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controllers.registration.entry import ControllerEntry, Rule, built, event_rule, informers, planned
from controllers.sshkeys.options import SSHKeyOptions

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


ENTRY = ControllerEntry(
    name=NAME,
    aliases=("ssh-key",),
    construct=built("controllers.sshkeys.controller:SSHKeyController", SSHKeyOptions),
    needs=lambda cloud: cloud.ssh_keys is not None,
    lacking="installs no SSH keys",
    planned_calls=planned("controllers.sshkeys.reconcile:planned_calls"),
    problems=_problems,
    module="controllers.sshkeys.controller",
    informers=informers("NODES"),
    options=(SSHKeyOptions,),
    on_by_default=False,
    rules=(
        Rule(resource="nodes", verbs=("list", "watch"), consequence="machines that join get no SSH keys for an hour"),
        event_rule("no Event says which SSH keys could not be installed"),
    ),
)
