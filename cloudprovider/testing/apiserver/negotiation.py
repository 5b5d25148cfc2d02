"""Content negotiation: which form of the answer a client gets, and what its body was written in.

Used by `api` for every request; pure. Forms that the real server has and this one lacks are 501, those that
neither has 406 or 415.
"""

from __future__ import annotations

import enum
from functools import lru_cache

from cloudprovider.testing.apiserver import protobuf
from cloudprovider.testing.apiserver.errors import JSON, StatusError, not_implemented

META_V1 = "meta.k8s.io/v1"


class Form(enum.Enum):
    """The form of an answer."""

    FULL = "full"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"


_JSON = ("application/json", "application/*", "*/*")
_ELSEWHERE = ("application/yaml", protobuf.MEDIA_TYPE, "application/cbor")


@lru_cache(maxsize=256)
def _choose(accept: str) -> Form | str:
    """The first form in an Accept header that this server has; "elsewhere" or "never" if there is none."""
    outcome = "never"
    for part in accept.split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        options = dict(piece.partition("=")[::2] for piece in parameters)
        wanted = options.get("as", "")
        if media in _ELSEWHERE or (media in _JSON and wanted == "Table"):
            outcome = "elsewhere"
        if media not in _JSON:
            continue
        if not wanted:
            return Form.FULL
        if wanted in (Form.METADATA.value, Form.METADATA_LIST.value):
            if options.get("v", "v1") == "v1" and options.get("g", "meta.k8s.io") == "meta.k8s.io":
                return Form(wanted)
            outcome = "elsewhere"
    return outcome


def answer_form(accept: str) -> Form:
    """The form that an Accept header asks for. Raises StatusError: 501 (the real server has it) or 406."""
    if not accept or accept == "application/json" or accept == "*/*":
        return Form.FULL
    chosen = _choose(accept)
    if isinstance(chosen, Form):
        return chosen
    if chosen == "elsewhere":
        raise not_implemented(f"answers of the type {accept}")
    raise StatusError(
        406,
        "NotAcceptable",
        "only the following media types are accepted: application/json, application/yaml, "
        "application/vnd.kubernetes.protobuf, application/cbor",
    )


def unsupported_media_type(found: str, accepted: tuple[str, ...]) -> StatusError:
    """415: a body that the real server would not read either."""
    return StatusError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}",
    )


def check_body_type(content_type: str) -> None:
    """Creates and updates are JSON or Protobuf. Raises StatusError: 501 for YAML and CBOR, 415 for all else."""
    media = content_type.partition(";")[0].strip()
    if media in ("", "application/json", protobuf.MEDIA_TYPE):
        return
    if media in _ELSEWHERE:
        raise not_implemented(f"request bodies of the type {media}")
    raise unsupported_media_type(media, ("application/json", "application/yaml", protobuf.MEDIA_TYPE))


def partial_metadata(obj: JSON) -> JSON:
    """An object as PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": META_V1, "metadata": obj.get("metadata", {})}
