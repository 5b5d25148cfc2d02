"""Volumes: the zones of one, as its zone label writes them. Pure; for providers (stage 5).

Follows: k8s.io/cloud-provider volume/helpers/zones.go. Choosing zones and sizes for new volumes is
left to CSI drivers.
"""

from __future__ import annotations

from collections.abc import Iterable

from cloudprovider.wellknown import LABEL_MULTI_ZONE_DELIMITER

__all__ = ["label_value_to_zone_list", "zones_to_label_value"]


def label_value_to_zone_list(value: str) -> tuple[str, ...]:
    """The zones in a volume's zone label, in the order given: "a__b" is a and b. Raises ValueError
    when one is empty."""
    zones = tuple(zone.strip() for zone in value.split(LABEL_MULTI_ZONE_DELIMITER))
    if not all(zones):
        raise ValueError(
            f"the list of zones {value!r}, delimited by {LABEL_MULTI_ZONE_DELIMITER!r}, has an empty element"
        )
    return zones


def zones_to_label_value(zones: Iterable[str]) -> str:
    """The zone label of a volume that lies in these zones, sorted so that the same set always gives
    the same label.

    Raises ValueError when there is no zone, or one would not be read back as it is: it is empty,
    has blanks around it, or holds or touches the delimiter "__".
    """
    ordered = sorted(set(zones))
    value = LABEL_MULTI_ZONE_DELIMITER.join(ordered)
    if label_value_to_zone_list(value) != tuple(ordered):
        raise ValueError(
            f"the zones {ordered} cannot be joined with {LABEL_MULTI_ZONE_DELIMITER!r} and told apart again"
        )
    return value
