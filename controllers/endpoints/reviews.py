"""Questions to the API server about users, each with a time limit, a memory for the answers, and
the permissions that they need.

TokenReviews and SubjectAccessReviews are posted, but write nothing: a manager that waits for its
turn to lead asks too. Names and buckets of the metrics are those of k8s.io/apiserver
(authenticatorfactory/metrics.go, authorizerfactory/metrics.go).
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, Generic, Literal, TypeVar

from cloudprovider.internal.cleaning import text_of
from controllers.registration.entry import Rule
from controllers.runtime.api import ApiError, Forbidden, RestClient
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

TIMEOUT_SECONDS: Final = 5.0
"""For one question, with all that it takes. Prometheus waits for 10 s."""
REMEMBERED: Final = 1024
"""Answers, of each kind."""
_COMPLAIN_SECONDS: Final = 30.0  # between two lines about questions without an answer
_BUCKETS: Final = (0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0)


class NeedsLookup(Exception):
    """The answer is not known here. The API server must be asked, which may take a while."""


class Reviewer:
    """Asks one kind of question; thread-safe. `part` is "authn" or "authz", for the metrics."""

    def __init__(
        self, rest: RestClient, rule: Rule, kind: str, part: Literal["authn", "authz"], metrics: Metrics, clock: Clock
    ) -> None:
        self._rest = rest
        self._rule = rule
        self._kind = kind
        self._clock = clock
        self._logged = False
        self._lock = threading.Lock()
        self._failed = 0
        self._complain_at = float("-inf")
        self._total = metrics.counter(
            f"apiserver_delegated_{part}_request_total",
            "Requests to the API server about users, by status code (<error>: no answer).",
            ("code",),
        )
        self._seconds = metrics.histogram(
            f"apiserver_delegated_{part}_request_duration_seconds",
            "Seconds of requests to the API server about users, by status code (<error>: no answer).",
            ("code",),
            _BUCKETS,
        )

    def ask(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """The status of the answered review. Raises ApiError; logs a missing permission once."""
        body = {"apiVersion": f"{self._rule.group}/v1", "kind": self._kind, "spec": spec}
        path = f"/apis/{self._rule.group}/v1/{self._rule.resource}"
        began = self._clock.monotonic()
        code = "<error>"
        try:
            answer = self._rest.request("POST", path, body=body, timeout=TIMEOUT_SECONDS)
            code = str(answer.status)
        except ApiError as error:
            code = str(error.status) if error.status else code
            # Told once: it does not change by itself, and anybody may make us ask.
            if isinstance(error, Forbidden):
                self._tell()
            else:
                self._complain(error)
            raise
        finally:
            self._total.labels(code=code).inc()
            self._seconds.labels(code=code).observe(self._clock.monotonic() - began)
        status = answer.json().get("status")
        # A proxy's page is no yes: an empty status authenticates and allows nobody.
        return status if isinstance(status, dict) else {}

    def _complain(self, error: ApiError) -> None:
        """One line for many: anybody may make us ask."""
        now = self._clock.monotonic()
        with self._lock:
            self._failed += 1
            # Anybody may cause it, so the number of lines must not be theirs to choose.
            if now < self._complain_at:
                return
            self._complain_at = now + _COMPLAIN_SECONDS
            failed, self._failed = self._failed, 0
        log.warning(
            "HTTPS requests are refused, as the API server does not answer a %s (%d since the last such line): %s",
            self._kind, failed, text_of(error),
        )  # fmt: skip

    def _tell(self) -> None:
        if not self._logged:
            self._logged = True
            log.warning(
                "missing permission: create on %s. Without it %s. Fix: %s",
                self._rule.resource, self._rule.consequence, self._rule.fix(),
            )  # fmt: skip


class Remembered(Generic[K, V]):
    """Answers for a while, bounded in number: the oldest one goes first. Thread-safe."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: K) -> V | None:
        """What is remembered, or None."""
        with self._lock:
            found = self._known.get(key)
            if found is None:
                return None
            if self._clock.monotonic() >= found[0]:
                # A permission that was taken away must end here within the time that the flag says.
                del self._known[key]
                return None
            return found[1]

    def put(self, key: K, value: V, seconds: float) -> None:
        """Remember this for so long; 0: not at all."""
        # A time of 0 in the flag turns the memory off.
        if seconds <= 0:
            return
        with self._lock:
            self._known[key] = (self._clock.monotonic() + seconds, value)
            self._known.move_to_end(key)
            # Strangers choose what is asked: the memory for it must not grow with them.
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)


TOKEN_RULE: Final = Rule(
    resource="tokenreviews",
    verbs=("create",),
    group="authentication.k8s.io",
    consequence="nobody can read metrics and the status pages over HTTPS with a token",
)
ACCESS_RULE: Final = Rule(
    resource="subjectaccessreviews",
    verbs=("create",),
    group="authorization.k8s.io",
    consequence="only system:masters can read metrics and the status pages over HTTPS",
)
LOOKUP_RULE: Final = Rule(
    resource="configmaps",
    verbs=("get",),
    namespace="kube-system",
    names=("extension-apiserver-authentication",),
    consequence="the cluster's client certificates are not accepted over HTTPS",
)
SERVING_RULES: Final = (TOKEN_RULE, ACCESS_RULE, LOOKUP_RULE)
"""It works without, a little worse: the manifest grants them, and a missing one is warned of."""
