"""Resource quantities in canonical form ("1000m" is "1", "1.5Gi" is "1536Mi"), as the real server stores them.

Used by the schema's normalisation; pure. Rules follow k8s.io/apimachinery pkg/api/resource/quantity.go.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal, localcontext
from functools import lru_cache
from typing import Final

_PATTERN: Final = re.compile(r"([+-]?)([0-9]*)(?:(\.)([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_NAMES: Final = {power: name for name, power in _DECIMAL.items()}
_BINARY_NAMES: Final = {power: name for name, power in _BINARY.items()}

FORMAT_WRONG: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
NUMBER_WRONG: Final = "unable to parse numeric part of quantity"
SUFFIX_WRONG: Final = "unable to parse quantity's suffix"
_MAXIMUM: Final = Decimal(2**63 - 1)


class BadQuantity(ValueError):
    """The text is no quantity; the message says which part."""


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """The one way to write this quantity. Raises BadQuantity. Pure; answers are remembered."""
    amount, style = _parse(text)
    if _keeps_its_form(text, style):
        return text.strip()
    if amount == 0:
        return "0"
    sign = "-" if amount < 0 else ""
    size = abs(amount).quantize(Decimal("0.001"), rounding=ROUND_CEILING)
    if style == "binary" and size >= 1024 and size == size.to_integral_value():
        power = 0
        whole = int(size)
        while power < 60 and whole % 1024 == 0:
            whole //= 1024
            power += 10
        return f"{sign}{whole}{_BINARY_NAMES.get(power, '')}"
    power = -9
    whole = int(size.scaleb(9).to_integral_value(rounding=ROUND_CEILING))
    ceiling = 18 if style != "exponent" else 10**6
    while power < ceiling and whole % 1000 == 0:
        whole //= 1000
        power += 3
    if style == "exponent":
        return f"{sign}{whole}e{power}" if power else f"{sign}{whole}"
    return f"{sign}{whole}{_DECIMAL_NAMES[power]}"


def _keeps_its_form(text: str, style: str) -> bool:
    """Some texts that are not quite canonical are stored as they came: the real server's parser takes a short
    cut for them.
    """
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        return False
    _, digits, _, fraction, suffix = match.groups()
    fraction = fraction or ""
    shifted = (digits.lstrip("0") or "0") + fraction
    if style == "binary":
        return not fraction and len(shifted) < 10 and int(shifted) & 7 != 0
    power = int(suffix[1:]) if style == "exponent" else _DECIMAL[suffix]
    scale = power - len(fraction)
    return len(shifted) <= 18 and scale % 3 == 0 and scale >= -3 and not shifted.endswith("000") and shifted[0] != "0"


def amount(text: str) -> Decimal:
    """The quantity as a number. Raises BadQuantity."""
    return _parse(text)[0]


def _parse(text: str) -> tuple[Decimal, str]:
    match = _PATTERN.fullmatch(text.strip())
    if not text or match is None:
        raise BadQuantity(FORMAT_WRONG)
    sign, digits, point, fraction, suffix = match.groups()
    if not digits and not (fraction or ""):
        raise BadQuantity(NUMBER_WRONG if point or suffix else FORMAT_WRONG)
    with localcontext() as context:
        context.prec = 200
        number = Decimal(f"{digits or '0'}.{fraction or '0'}")
        if suffix in _DECIMAL:
            style, number = "decimal", number.scaleb(_DECIMAL[suffix])
        elif suffix in _BINARY:
            style, number = "binary", number * (1 << _BINARY[suffix])
        elif re.fullmatch(r"[eE][-+]?[0-9]{1,4}", suffix):
            style, number = "exponent", number.scaleb(int(suffix[1:]))
        else:
            raise BadQuantity(SUFFIX_WRONG)
        nano = number.scaleb(9).to_integral_value(rounding=ROUND_CEILING)
        number = nano.scaleb(-9)
        if style == "binary" and number > _MAXIMUM:
            number = _MAXIMUM
        return (-number if sign == "-" else number), style
