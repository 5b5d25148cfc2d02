"""CloudConfig: the file given by --cloud-config, and the program's own flags, as a provider's
factory gets them.

Read here and never shown. What the bytes mean is the provider's own affair.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

from attrs import Attribute, evolve, field, frozen

from cloudprovider.errors import ConfigMissing, ConfigUnreadable
from cloudprovider.internal import fields

__all__ = ["CloudConfig"]

T = TypeVar("T")


def _is_bytes(_: object, __: Attribute[bytes], value: object) -> None:
    if not isinstance(value, bytes):  # the value itself stays out of the message: it may be a secret
        raise TypeError(f"CloudConfig.data must be bytes, not {type(value).__name__}")


@fields.documented
@frozen
class CloudConfig:
    """The file given by --cloud-config: its path and what it held when it was read. Its repr shows
    only the path.

    What the bytes mean is the provider's own affair. `path` and `data` are empty where there is no
    file, for a program with flags of its own (`main(flags=...)`); `path` alone for a config that
    was never a file (in tests).
    """

    path: str = field(validator=fields.text)
    """Where the file is; empty where there is none."""

    data: bytes = field(repr=False, validator=_is_bytes)
    """What it held when it was read."""

    options: tuple[object, ...] = field(default=(), repr=False)
    """The program's own flags: an instance of each options class that it declares; see `of`."""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> CloudConfig:
        """Read a config file; an empty file is fine.

        Raises `ConfigMissing` when there is none, `ConfigUnreadable` when it is a directory,
        forbidden, or broken.
        """
        shown = os.fspath(path)
        try:
            return cls(path=shown, data=Path(shown).read_bytes())
        except (FileNotFoundError, NotADirectoryError) as exc:
            raise ConfigMissing(
                f"there is no cloud config at {shown!r}", fix="correct --cloud-config, or create the file", path=shown
            ) from exc
        except (OSError, ValueError) as exc:  # ValueError: a NUL in the path
            reason = (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
            raise ConfigUnreadable(
                f"the cloud config at {shown!r} cannot be read ({reason})",
                fix="give a regular file that the user of this process may read",
                path=shown,
            ) from exc

    def read_again(self) -> CloudConfig:
        """The same file as it is now, for credentials that rotate, with the same options. Its
        secrets are masked from now on in what the process shows. Raises as `read` does."""
        if not self.path:
            raise ConfigMissing("this cloud config has no path to read again: it was made in memory.")
        from cloudprovider.internal.cleaning import conceal  # not loaded where nothing rotates
        from cloudprovider.internal.configsecrets import secret_values

        # The path and not an open file: the kubelet replaces a Secret's folder as a whole.
        again = evolve(type(self).read(self.path), options=self.options)
        conceal(secret_values(again.data), loaded=True)
        return again

    def of(self, kind: type[T]) -> T:
        """The program's options of this class; its defaults where the program declares none, as
        another vendor's."""
        for one in self.options:
            # By its class and not by a name: two packages may both have an `Options`.
            if isinstance(one, kind):
                return one
        # The same provider runs in programs that do not declare its flags.
        return kind()

    def text(self) -> str:
        """The bytes as UTF-8, a byte-order mark dropped. Raises `ConfigUnreadable` when they are
        something else."""
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            where = exc.start
        # Raised out here, without the cause, whose own attributes hold the bytes.
        raise ConfigUnreadable(
            f"the cloud config at {self.path!r} is not UTF-8 text (byte {where})",
            fix="save it as UTF-8",
            path=self.path,
        )
