"""The subject of a certificate, from its DER form: who the client is. Pure.

The TLS library has checked the certificate. Nothing but the subject is read: `getpeercert()` reads
alternative names too, and raises where one of them is no UTF-8. RFC 5280, 4.1."""

from __future__ import annotations

from typing import Final

from controllers.httpserver.messages import Certificate

_NAMES: Final = {b"\x55\x04\x03": "commonName", b"\x55\x04\x0a": "organizationName"}
_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_VERSION: Final = 0xA0
_CODECS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x16: "ascii", 0x14: "latin-1", 0x1E: "utf-16-be", 0x1C: "utf-32-be"}
"""UTF8String, PrintableString, IA5String, TeletexString, BMPString, UniversalString."""


def subject_of(certificate: bytes) -> Certificate:
    """The common names and organizations, in order. Raises OSError if they cannot be read."""
    try:
        [(_, body)] = _parts(certificate)
        signed = _parts(_parts(body)[0][1])
        _, _, _, _, (_, subject) = signed[1 if signed[0][0] == _VERSION else 0 :][:5]  # the fifth field
        pairs = [
            ((_NAMES[kind], value.decode(_CODECS[tag])),)
            for of_set, relative in _parts(subject)
            for of_pair, pair in _parts(relative)
            for (_, kind), (tag, value) in [_parts(pair)]
            if (of_set, of_pair) == (_SET, _SEQUENCE) and kind in _NAMES
        ]
    except (ValueError, IndexError, KeyError) as error:
        raise OSError(f"the subject of the client's certificate cannot be read: {error}") from error
    return {"subject": tuple(pairs)}


def _parts(data: bytes) -> list[tuple[int, bytes]]:
    """(tag, content) of values that follow each other. Raises ValueError and IndexError."""
    found, at = [], 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length >= 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        if at + length > len(data):
            raise ValueError("a value is longer than what holds it")
        found.append((tag, data[at : at + length]))
        at += length
    return found
