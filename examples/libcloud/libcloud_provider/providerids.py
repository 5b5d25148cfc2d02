"""Provider IDs from a template such as `aws:///{zone}/{id}`: written, read, and compared. Pure.

The driver, the region and the project are the same for all machines of a provider, so they are put
in at the start; zone, ID and name are the machine's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from string import Formatter

from attrs import frozen

from cloudprovider import CloudProviderError
from cloudprovider.helpers import format_provider_id, provider_id_problems
from libcloud_provider.profiles import Parts

_FIXED = ("driver", "region", "project")
_OWN = ("zone", "id", "name")
_UNNEEDED = re.compile(r"[^/]*\{region\}/")


def template_problems(template: str) -> tuple[str, ...]:
    """What is wrong with a template of the configuration; empty when it can be used."""
    try:
        fields = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError as exc:
        return (f"cannot be read: {exc}",)
    problems = [
        f"{{{name}}} is unknown; known: {', '.join(_FIXED + _OWN)}" for name in fields if name not in _FIXED + _OWN
    ]
    if not template.endswith(("{id}", "{name}")):
        problems.append("must end with {id} or {name}")
    if not problems:
        problems += provider_id_problems(template.format_map(dict.fromkeys(_FIXED + _OWN, "x")))
    scheme = template.partition("://")[0]
    if "{" in scheme:
        problems.append("must begin with a fixed word and ://")
    return tuple(problems)


@frozen(slots=False)
class ProviderIDs:
    """The provider IDs of one provider."""

    template: str
    """With the fixed parts in it."""

    @classmethod
    def of(cls, template: str, fixed: Mapping[str, str]) -> ProviderIDs:
        """A template with its fixed parts: driver, region and project. Without a region its place
        in the template goes. Raises ValueError where another fixed part is missing."""
        if not fixed.get("region"):
            template = _UNNEEDED.sub("", template)
        for name in _FIXED:
            if f"{{{name}}}" in template:
                if not fixed.get(name):
                    raise ValueError(f"the provider ID {template} needs {name}, which is not set")
                template = template.replace(f"{{{name}}}", fixed[name])
        return cls(template)

    @property
    def prefix(self) -> str:
        """How all of them begin."""
        return self.template.partition("{")[0]

    def write(self, parts: Parts) -> str:
        """A machine's provider ID. Raises `CloudProviderError` where the cloud does not say what is
        needed."""
        values = {name: getattr(parts, name) for name in _OWN}
        missing = [name for name in _OWN if f"{{{name}}}" in self.template and not values[name]]
        if missing:
            raise CloudProviderError(
                f"the cloud does not say the {' and '.join(missing)} of machine {parts.name or parts.id}, which its "
                f"provider ID {self.template} needs"
            )
        scheme, _, rest = self.template.format_map(values).partition("://")
        return format_provider_id(scheme, rest)

    def read(self, provider_id: str) -> Parts:
        """What a provider ID says. Raises `CloudProviderError` for one that this provider never
        writes: that is unknown to us, which is not "gone"."""
        found = self._pattern.fullmatch(provider_id)
        if found is None:
            raise CloudProviderError(f"{provider_id} is no machine of this provider: {self.template}")
        return Parts(**found.groupdict())

    def key(self, parts: Parts) -> tuple[str, ...]:
        """What two provider IDs of one machine have in common, whatever letter case they are in. A
        zone counts where the machine is known by its name."""
        if "{id}" in self.template:
            return (parts.id.casefold(),)
        return (parts.zone.casefold() if "{zone}" in self.template else "", parts.name.casefold())

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        pieces = []
        for text, name, _, _ in Formatter().parse(self.template):
            pieces.append(re.escape(text))
            if name is not None:  # an empty zone is accepted, as AWS's own provider does
                pieces.append("(?P<zone>[^/]*)" if name == "zone" else f"(?P<{name}>.+)")
        return re.compile("".join(pieces))
