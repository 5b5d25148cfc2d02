"""Volumes: the zones of one, and its size in the cloud's units. Pure; for providers (stage 5).

Follows: k8s.io/cloud-provider volume/helpers/zones.go and rounding.go; quantities as in k8s.io/apimachinery
pkg/api/resource/quantity.go. Choosing zones for new volumes is left to CSI drivers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from cloudprovider.wellknown import LABEL_MULTI_ZONE_DELIMITER

__all__ = [
    "GB",
    "KB",
    "MAX_INT32",
    "MAX_INT64",
    "MB",
    "GiB",
    "KiB",
    "MiB",
    "label_value_to_zones",
    "label_value_to_zone_list",
    "quantity_to_bytes",
    "round_up_size",
    "round_up_to_b",
    "round_up_to_gib",
    "round_up_to_kb",
    "round_up_to_kib",
    "round_up_to_mb",
    "round_up_to_mib",
    "zones_to_label_value",
    "zones_to_set",
]

KB: Final = 1000
KiB: Final = 1024
MB: Final = 1000**2
MiB: Final = 1024**2
GB: Final = 1000**3
GiB: Final = 1024**3

MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1

_QUANTITY = re.compile(r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?P<suffix>[A-Za-z].*)?")
_EXPONENT = re.compile(r"[eE](?P<exponent>[+-]?[0-9]{1,9})")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_HUGE = 40  # ten to this power is beyond int64 whatever it is multiplied by


def label_value_to_zones(value: str) -> frozenset[str]:
    """The zones in a volume's zone label: "a__b" is a and b. Raises ValueError when one is empty."""
    return frozenset(label_value_to_zone_list(value))


def label_value_to_zone_list(value: str) -> tuple[str, ...]:
    """As `label_value_to_zones`, in the order given and with repetitions."""
    return _split(value, LABEL_MULTI_ZONE_DELIMITER)


def zones_to_label_value(zones: Iterable[str]) -> str:
    """The zone label of a volume that lies in these zones, sorted so that the same set always gives the same
    label.

    Raises ValueError when there is no zone, or one would not be read back as it is: it is empty, has blanks
    around it, or holds or touches the delimiter "__".
    """
    ordered = sorted(set(zones))
    value = LABEL_MULTI_ZONE_DELIMITER.join(ordered)
    if label_value_to_zone_list(value) != tuple(ordered):
        raise ValueError(
            f"the zones {ordered} cannot be joined with {LABEL_MULTI_ZONE_DELIMITER!r} and told apart again"
        )
    return value


def zones_to_set(zones: str) -> frozenset[str]:
    """The zones in a list with commas, such as a StorageClass parameter. Raises ValueError when one is
    empty."""
    return frozenset(_split(zones, ","))


def _split(value: str, delimiter: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in value.split(delimiter))
    if not all(parts):
        raise ValueError(f"the list of zones {value!r}, delimited by {delimiter!r}, has an empty element")
    return parts


def quantity_to_bytes(quantity: str | int) -> int:
    """A Kubernetes quantity ("1.5Gi", "100M", "1e9", or a plain number) as whole bytes, a fraction rounded
    up.

    Exact, without floating point. Raises ValueError when it is no quantity, negative, or beyond int64.
    """
    if isinstance(quantity, int):
        size = quantity
        if size < 0:
            raise ValueError(f"the quantity {quantity} is negative")
    else:
        size = _parse(quantity)
    if size >= MAX_INT64:  # Go counts the very last value as too large as well
        raise ValueError(f"the quantity {quantity} is too large: it overflows int64")
    return size


def _parse(text: str) -> int:
    match = _QUANTITY.fullmatch(text)
    digits = (match["whole"] or "") + (match["fraction"] or "") if match else ""
    if match is None or not digits:
        raise ValueError(f"{text!r} is no quantity: the form is 10, 1.5Gi, 100M or 1e9")
    ten, two = _exponents(text, match["suffix"] or "")
    ten -= len(match["fraction"] or "")
    number = int(digits)
    if number == 0:
        return 0
    if match["sign"] == "-":
        raise ValueError(f"the quantity {text} is negative")
    if ten > _HUGE:
        return MAX_INT64
    if ten < -(_HUGE + len(digits)):
        return 1
    number <<= two
    scale: int = 10 ** abs(ten)
    return number * scale if ten >= 0 else -(-number // scale)


def _exponents(text: str, suffix: str) -> tuple[int, int]:
    """The powers of ten and of two that a suffix stands for."""
    if suffix in _DECIMAL:
        return _DECIMAL[suffix], 0
    if suffix in _BINARY:
        return 0, _BINARY[suffix]
    match = _EXPONENT.fullmatch(suffix)
    if match is None:
        raise ValueError(f"the quantity {text!r} has the unknown suffix {suffix!r}")
    return int(match["exponent"]), 0


def round_up_size(size: str | int, unit: int, *, limit: int = MAX_INT64) -> int:
    """How many units of `unit` bytes hold this size: 1500Mi is 2 units of GiB.

    Raises ValueError as `quantity_to_bytes` does, when the unit is not positive, and when the result is above
    `limit` (pass `MAX_INT32` for a cloud API that counts in 32 bits).
    """
    if unit <= 0:
        raise ValueError(f"a unit must be a positive number of bytes, not {unit}")
    units = -(-quantity_to_bytes(size) // unit)
    if units > limit:
        raise ValueError(f"the quantity {size} is too large: {units} units of {unit} bytes are more than {limit}")
    return units


def round_up_to_gib(size: str | int, *, limit: int = MAX_INT64) -> int:
    """The size in GiB, rounded up; see `round_up_size`."""
    return round_up_size(size, GiB, limit=limit)


def round_up_to_mb(size: str | int, *, limit: int = MAX_INT64) -> int:
    """The size in MB (10^6), rounded up; see `round_up_size`."""
    return round_up_size(size, MB, limit=limit)


def round_up_to_mib(size: str | int, *, limit: int = MAX_INT64) -> int:
    """The size in MiB, rounded up; see `round_up_size`."""
    return round_up_size(size, MiB, limit=limit)


def round_up_to_kb(size: str | int, *, limit: int = MAX_INT64) -> int:
    """The size in kB (10^3), rounded up; see `round_up_size`."""
    return round_up_size(size, KB, limit=limit)


def round_up_to_kib(size: str | int, *, limit: int = MAX_INT64) -> int:
    """The size in KiB, rounded up; see `round_up_size`."""
    return round_up_size(size, KiB, limit=limit)


def round_up_to_b(size: str | int, *, limit: int = MAX_INT64) -> int:
    """The size in bytes, rounded up; see `round_up_size`."""
    return round_up_size(size, 1, limit=limit)
