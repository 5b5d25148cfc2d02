"""Admission webhooks: AdmissionReview in, AdmissionReview out. Stage: beside the six; no sockets here.

A request of the API server enters `desk.py`, which checks it, turns its body into an `AdmissionRequest` (`review.py`),
and has a `Handler` (`handler.py`) answer it in a bounded number of threads and before the API server stops waiting
(`bounded.py`). What leaves is the HTTP status and body, with the patch that makes the handler's change (`patching.py`).
`controllers/app/webhooks/` serves it over HTTPS. A vendor's webhook is a `Webhook`, which says what it is for, and a
subclass of `Handler`.

Read first: `webhook.py`, `handler.py`, `review.py`, `desk.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controllers.lazy import lazy

if TYPE_CHECKING:
    from controllers.admission.desk import MAX_BODY, Desk, Reply
    from controllers.admission.handler import Handler
    from controllers.admission.review import AdmissionRequest, Answer, allow, change, deny
    from controllers.admission.webhook import Match, Webhook
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "desk": ["MAX_BODY", "Desk", "Reply"],
            "handler": ["Handler"],
            "review": ["AdmissionRequest", "Answer", "allow", "change", "deny"],
            "webhook": ["Match", "Webhook"],
        },
    )

__all__ = [
    # for a webhook of your own
    "Webhook",
    "Match",
    "Handler",
    "AdmissionRequest",
    "Answer",
    "allow",
    "change",
    "deny",
    # to serve it
    "Desk",
    "Reply",
    "MAX_BODY",
]
