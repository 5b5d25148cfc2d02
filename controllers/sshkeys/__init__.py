"""The ssh-key controller; see controller.py for where to begin."""

from typing import TYPE_CHECKING

from controllers.lazy import lazy

if TYPE_CHECKING:
    from controllers.sshkeys.controller import SSHKeyController
    from controllers.sshkeys.options import SSHKeyOptions
else:
    __getattr__, __dir__ = lazy(__name__, {"controller": ["SSHKeyController"], "options": ["SSHKeyOptions"]})

__all__ = ["SSHKeyController", "SSHKeyOptions"]
