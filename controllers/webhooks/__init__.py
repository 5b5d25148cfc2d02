"""Admission webhooks: AdmissionReview in, AdmissionReview out.

A vendor's webhook is a `Webhook`, which says what it is for, and a subclass of `Handler`. A request
of the API server comes over HTTPS (`serving.py`) to `router.py`, which checks it, turns its body
into an `AdmissionRequest` (`review.py`), and has the handler answer it in a bounded number of
threads, before the API server stops waiting. The server's certificate is shared by all replicas,
and its CA is written where the API server looks for it (`trust.py`).

Read first: `webhook.py`, `review.py`, `router.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudprovider.internal.lazy import lazy

if TYPE_CHECKING:
    from controllers.webhooks.review import AdmissionRequest, Answer, Handler, allow, change, deny
    from controllers.webhooks.webhook import MAX_BODY, Match, Webhook
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "controllers.webhooks.review": "AdmissionRequest Answer Handler allow change deny",
            "controllers.webhooks.webhook": "MAX_BODY Match Webhook",
        },
    )

__all__ = [
    "Webhook",
    "Match",
    "Handler",
    "AdmissionRequest",
    "Answer",
    "allow",
    "change",
    "deny",
    "MAX_BODY",
]
