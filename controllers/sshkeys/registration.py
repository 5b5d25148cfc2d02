"""ssh-key-controller in the manager: its flags, its permissions and its entry.

Off by default: in Go it was part of kube-apiserver, and is gone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from controllers.options import DURATION, NAME, PATH, drain_timeout_option, option, positive
from controllers.registration.entry import ControllerEntry, Rule, built, event_rule, informers

_CONTROLLER: Final = "ssh-key-controller"
_USER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")


def _user(value: str) -> str | None:
    if not value or _USER.fullmatch(value):
        return None
    return "must be a user's name on the machines: at most 32 letters, digits, and _ . -, beginning with a letter or _"


@frozen(kw_only=True)
class SSHKeyOptions:
    """How the controller works. Frozen; raises ValueError on values that make no sense."""

    ssh_user: str = option(
        "",
        NAME,
        "ssh-user",
        _CONTROLLER,
        "User on the machines who may log in with the keys of --ssh-keyfile.",
        check=_user,
    )
    ssh_keyfile: str = option(
        "",
        PATH,
        "ssh-keyfile",
        _CONTROLLER,
        "File with public keys in OpenSSH's form, one a line (as id_ed25519.pub). A private key is refused. Changes of "
        "the file are followed.",
    )
    ssh_key_sync_period: float = option(
        3600.0,
        DURATION,
        "ssh-key-sync-period",
        _CONTROLLER,
        "How often the keys are installed again although neither the file nor the nodes have changed, to repair what "
        "was changed in the cloud.",
        check=positive,
    )
    gather: float = option(10.0, DURATION, check=positive)
    """Seconds that the keys wait for further nodes after one, so that many cost one call."""
    file_period: float = option(5.0, DURATION, check=positive)
    """Seconds between two looks at the file; a change counts when two show the same."""
    drain_timeout: float = drain_timeout_option()


def _problems(values: Mapping[str, Any]) -> list[str]:
    from controllers.sshkeys.keyfile import KeyFile, KeyFileProblems

    missing = [f"--{flag}: {_CONTROLLER} needs it" for flag in ("ssh-user", "ssh-keyfile") if not values[flag]]
    path = values["ssh-keyfile"]
    if path:
        try:
            KeyFile(path)
        except KeyFileProblems as error:
            return [*missing, *(f"--ssh-keyfile={path}: {problem}" for problem in error.problems)]
    return missing


ENTRY = ControllerEntry(
    name=_CONTROLLER,
    aliases=("ssh-key",),
    construct=built("controllers.sshkeys.controller:SSHKeyController", SSHKeyOptions),
    needs=lambda cloud: cloud.ssh_keys is not None,
    lacking="installs no SSH keys",
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
