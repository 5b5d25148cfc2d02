"""What a vendor's program has beside the rest: a class of flags, and a module with a controller's
entry."""

from __future__ import annotations

from attrs import frozen
from samplecloud_provider import pools

from controllers.options import STRING, option

__all__ = ["AcmeOptions", "pools"]


@frozen(kw_only=True)
class AcmeOptions:
    tenant: str = option("", STRING, "acme-tenant", "acme", "The tenant that pays.")
