"""The provider's configuration: the file given by --cloud-config, and the environment. All mistakes
at once.

The drivers' arguments have no type in libcloud, only names, spread over constructors that pass them
on. `arguments.py` collects these names, so that a misspelt one is told here and not ignored there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator
from typing_extensions import override

from cloudprovider.config import ProviderConfig
from libcloud_provider.arguments import (
    SECRET_NAMES,
    argument_problems,
    balancer_drivers,
    compute_drivers,
    hint,
    required_names,
)
from libcloud_provider.balancers import balancer_profile_of
from libcloud_provider.profiles import profile_of
from libcloud_provider.providerids import template_problems


class _Driver(ProviderConfig):
    """A driver of libcloud's and what it is made with."""

    driver: str = Field(description="libcloud's name of the driver; DRIVERS.md lists them.")
    arguments: dict[str, Any] = Field(
        default={}, description="The driver's arguments, by libcloud's names; no secrets."
    )
    credentials: dict[str, str] = Field(
        default={}, description="Arguments that are secret: the path of the file with each one's value."
    )

    @classmethod
    def drivers(cls) -> dict[str, Any]:
        """The drivers that there are: by name, where each is."""
        return compute_drivers()

    @classmethod
    def refusal(cls, driver: str) -> str:
        """Why this driver cannot be used here; "" where it can."""
        return profile_of(driver).refused

    @field_validator("driver")
    @classmethod
    def _driver_is_known(cls, driver: str) -> str:
        known = cls.drivers()
        if driver not in known:
            raise ValueError(f"libcloud has no driver of this name; {hint(driver, known)}")
        if refused := cls.refusal(driver):
            raise ValueError(f"libcloud's driver {driver} cannot be used: {refused}")
        return driver

    @field_validator("arguments")
    @classmethod
    def _arguments_are_known(cls, arguments: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        secret = sorted(arguments.keys() & SECRET_NAMES)
        problems = [f"{', '.join(secret)}: give the path of a file, under `credentials`"] if secret else []
        problems += argument_problems(cls._place(info), arguments)
        _raise_all(problems)
        return arguments

    @field_validator("credentials")
    @classmethod
    def _credentials_can_be_read(cls, credentials: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        problems = argument_problems(cls._place(info), credentials)
        for name, path in credentials.items():
            try:
                if not Path(path).read_text(encoding="utf-8").strip():
                    problems.append(f"{name}: the file {path} is empty")
            except (OSError, ValueError) as exc:
                why = (exc.strerror if isinstance(exc, OSError) else None) or "not UTF-8 text"
                problems.append(f"{name}: cannot read {path}: {why}")
        if "arguments" in info.data:  # else they are wrong themselves
            given = info.data["arguments"]
            if not credentials and "key" in given and not str(given["key"]).startswith("/"):  # GCE's is a path
                problems.append("key, which is the secret where there is no other, is under `arguments`")
            problems += [f"{name} is under `arguments` too" for name in sorted(given.keys() & credentials.keys())]
            problems += cls._missing(info.data.get("driver", ""), {**given, **credentials})
        _raise_all(problems)
        return credentials

    @classmethod
    def _missing(cls, driver: str, given: dict[str, Any]) -> list[str]:
        needed = (*required_names(cls.drivers().get(driver)), *profile_of(driver).required)
        lacking = [name for name in dict.fromkeys(needed) if name not in given]
        return [f"{name} is required, here or under `arguments`" for name in lacking]

    @classmethod
    def _place(cls, info: ValidationInfo) -> tuple[str, str] | None:
        place: tuple[str, str] | None = cls.drivers().get(info.data.get("driver", ""))
        return place


class BalancerConfig(_Driver):
    """The driver of load balancers."""

    options: dict[str, Any] = Field(
        default={}, description="Further arguments of the driver's create_balancer, such as a network."
    )

    @classmethod
    @override
    def drivers(cls) -> dict[str, Any]:
        return balancer_drivers()

    @classmethod
    @override
    def refusal(cls, driver: str) -> str:
        return balancer_profile_of(driver).refused

    @classmethod
    @override
    def _missing(cls, driver: str, given: dict[str, Any]) -> list[str]:
        """Nothing given: those of the machines' driver are taken."""
        lacking = [name for name in required_names(cls.drivers().get(driver)) if name not in given]
        return [f"{name} is required, here or under `arguments`" for name in lacking] if given else []


class Config(_Driver):
    """The settings; README.md has their table."""

    env_prefix: ClassVar[str] = "LIBCLOUD_PROVIDER_"

    region: str = Field(default="", description="The region, where the cloud has several.")
    provider_id: str = Field(
        default="",
        description="How provider IDs look, such as `hcloud://{id}`; placeholders: driver, region, project, zone, "
        "id, name. Must never change once nodes have them. Empty: as DRIVERS.md says.",
    )
    match: tuple[Literal["name", "address"], ...] = Field(
        default=("name", "address"),
        min_length=1,
        description="How a node without a provider ID finds its machine, in this order.",
    )
    absent: Literal["unknown", "gone"] = Field(
        default="unknown",
        description="What a machine is that is missing in a listing, where the driver cannot ask about one machine.",
    )
    load_balancer: BalancerConfig | None = Field(default=None, description="The driver of load balancers, if any.")

    @field_validator("provider_id")
    @classmethod
    def _is_a_template(cls, template: str) -> str:
        _raise_all(template_problems(template) if template else ())
        return template

    @property
    def region_or_argument(self) -> str:
        """The region, wherever it was given."""
        return self.region or str(self.arguments.get(profile_of(self.driver).region_argument, ""))


def _raise_all(problems: Sequence[str]) -> None:
    if problems:
        raise ValueError("; ".join(problems))
