"""Cipher suites by the names that Go's flags have, and what the TLS library calls them. Pure,
and apart from `tls.py`: flags are checked with it before anything heavy is imported.

The suites of TLS 1.3 are always offered, as in Go, where they cannot be chosen either. Follows
component-base's cli/flag/ciphersuites_flag.go, and the standard names of RFC 5246 and 8446.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ssl

_TLS13: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_TLS12: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
}
_BROKEN: Final = frozenset(
    {
        "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
        "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
        "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_RSA_WITH_RC4_128_SHA",
    }
)


def check_ciphers(names: Sequence[str]) -> str | None:
    """A check for a flag with cipher suites: every name is known, and none is broken."""
    broken = [name for name in names if name in _BROKEN]
    unknown = [name for name in names if name not in _BROKEN and name not in _TLS13 and name not in _TLS12]
    problems = []
    if unknown:
        problems.append(f"unknown: {', '.join(unknown)}. Names look like TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    if broken:
        problems.append(f"RC4 and 3DES are broken and not offered: leave out {', '.join(broken)}")
    return "; ".join(problems) or None


def restrict(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Offer these cipher suites alone; none given: the library's choice, without weak ones.

    Where all of them are TLS 1.3's, older versions are not spoken."""
    older = list(dict.fromkeys(_TLS12[name] for name in names if name in _TLS12))
    if older:
        context.set_ciphers(":".join(older))
    elif names:
        from ssl import TLSVersion  # imported late: --help reads this module

        context.minimum_version = TLSVersion.TLSv1_3
