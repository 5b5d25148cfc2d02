"""The code that answers a webhook's requests: what a vendor implements.

Stage: beside the six. A handler gets an `AdmissionRequest` from `desk.py` and gives back an `Answer`. Registered by
an entry of `controllers/app/webhooks`, together with the `Webhook` that says what it is for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from controllers.admission.review import AdmissionRequest, Answer

__all__ = ["Handler"]


class Handler(ABC):
    """Answers the requests of one webhook, in many threads at once, on every replica, leading or not.

    It must change nothing: the same request may come again, with `dry_run`, or never be carried out.
    """

    @abstractmethod
    def handle(self, request: AdmissionRequest) -> Answer:
        """Say what becomes of a request, by `allow`, `change` or `deny`.

        `cloudprovider.current_call()` tells how much time is left: a little less than the API server waits. What comes
        later is thrown away, and what this raises becomes an HTTP 500; in both cases the API server goes by the
        `failurePolicy` of the webhook's configuration.
        """

    def late(self, request: AdmissionRequest) -> Answer | None:
        """What to say where `handle` has not answered in time, or there is no free thread for it. Must not block.

        None: nothing (an HTTP error), so that the `failurePolicy` decides.
        """
        return None
