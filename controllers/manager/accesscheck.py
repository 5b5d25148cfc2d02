"""Do we have the permissions that the controllers need? The API server is asked by
SelfSubjectAccessReviews, and the log and /healthz name the missing rule.

Without this a missing rule shows only as retries without end (row N7). Where even the question is
refused, nothing is claimed. Permissions can be taken away while we run (row O1): all are asked
about again after any answer 403, and one of them in turn every few seconds."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence

import attrs

from cloudprovider.host import StopSignal
from controllers.endpoints.health import Check
from controllers.registration.entry import Rule
from controllers.runtime.api import ApiError, CredentialsUnavailable, RestClient
from controllers.runtime.clock import Clock

log = logging.getLogger(__name__)

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
AGAIN_SECONDS = 10.0
"""Between two looks at all permissions while one is missing or the API server cannot be asked; and
between two samples of one permission while all is well."""
REFUSED_SECONDS = 300.0
"""Between two tries where the question itself is refused, after the first of them."""
_POLL = 1.0  # seconds between two looks at the count of answers 403
_IDLE = 0.1  # seconds between two looks whether there is something to ask
_CALM = 5.0  # seconds at least between two looks because of them
_TIMEOUT = 5.0


class AccessCheck:
    """Asks until it is stopped. `run` is called once, in a thread; `checks` from any thread.

    `accounts` gives the client of the service account that a rule names; `forbidden()` is how many
    requests were answered 403 so far.
    """

    def __init__(
        self,
        rest: RestClient,
        *,
        accounts: Callable[[str], RestClient],
        forbidden: Callable[[], int],
        clock: Clock,
    ) -> None:
        """`rest` must be unguarded: a question about permissions is a POST."""
        self._rest = rest
        self._accounts = accounts
        self._rules: list[Rule] = []
        self._samples: Iterator[tuple[Rule, str]] = iter(())
        self._forbidden = forbidden
        self._clock = clock
        self._missing: tuple[Rule, ...] = ()
        self._known = False  # whether the last look at all permissions was answered
        self._seen = 0  # answers 403 before that look
        self._looked = 0.0
        self._refused = 0  # times in a row that the question itself was

    def ask_about(self, rules: Sequence[Rule]) -> None:
        """From now on look for these permissions, in place of those before."""
        kept = list(dict.fromkeys(rules))
        if kept == self._rules:
            return
        self._samples = itertools.cycle([(rule, verb) for rule in kept for verb in rule.verbs])
        self._rules, self._known = kept, False
        self._missing = tuple(rule for rule in self._missing if any(rule.resource == one.resource for one in kept))

    def run(self, stop: StopSignal) -> None:
        """Look, log what is missing or was added since, and go on looking. Waits until there is
        something to ask."""
        while not stop.is_set():
            rules = self._rules
            if not rules:
                stop.wait(_IDLE)
                continue
            until = self._clock.monotonic() + self._round()
            while (left := until - self._clock.monotonic()) > 0 and not self._is_suspicious():
                if self._rules is not rules or stop.wait(min(left, _POLL)):
                    break

    def _is_suspicious(self) -> bool:
        return self._forbidden() != self._seen and self._clock.monotonic() - self._looked >= _CALM and not self._refused

    def _round(self) -> float:
        """Ask once; returns the seconds until the next time."""
        try:
            if not self._known or self._missing or self._is_suspicious() or not self._ask(*next(self._samples)):
                self._seen, self._looked = self._forbidden(), self._clock.monotonic()
                self._known = False
                missing = self._look()
                self._known = True
                self._log(missing)
        except ApiError as error:
            if error.status in (401, 403, 404, 405, 501):
                self._refused += 1
                if self._refused == 1:  # an API server that has just started refuses everybody
                    return AGAIN_SECONDS
                if self._refused == 2:
                    log.warning("permissions cannot be checked: %s", error)
                return REFUSED_SECONDS
            log.debug("permissions could not be checked, retrying later: %s", error)
        else:
            self._refused = 0
        return AGAIN_SECONDS

    @property
    def answered(self) -> bool:
        """Whether it is known what is missing, or that it cannot be known."""
        return self._known or self._refused > 1 or not self._rules

    @property
    def missing(self) -> tuple[Rule, ...]:
        """The rules that are missing, as far as is known."""
        return self._missing

    def checks(self) -> list[Check]:
        """One failed check per missing rule; none when all is well or nothing is known."""
        return [
            Check(f"rights-{rule.resource}{f'-{rule.account}' if rule.account else ''}", False, rule.fix())
            for rule in self._missing
        ]

    def _look(self) -> tuple[Rule, ...]:
        allowed: dict[tuple[str, ...], bool] = {}  # what several rules name is asked once
        missing = []
        for rule in self._rules:
            denied = []
            for verb in rule.verbs:
                asked = (rule.account, verb, rule.group, rule.resource, rule.namespace, *rule.names)
                if asked not in allowed:
                    allowed[asked] = self._ask_or_trust(rule, verb)
                if not allowed[asked]:
                    denied.append(verb)
            if denied:
                missing.append(attrs.evolve(rule, verbs=tuple(denied)))
        return _merged(missing)

    def _ask_or_trust(self, rule: Rule, verb: str) -> bool:
        """While an account has no token its permissions are not known; logged elsewhere."""
        try:
            return self._ask(rule, verb)
        except CredentialsUnavailable:
            if not rule.account:
                raise
            return True

    def _ask(self, rule: Rule, verb: str) -> bool:
        resource, _, subresource = rule.resource.partition("/")
        attributes = {"verb": verb, "group": rule.group, "resource": resource}
        if subresource:
            attributes["subresource"] = subresource
        if rule.namespace:
            attributes["namespace"] = rule.namespace
        if names := rule.named(verb):
            attributes["name"] = names[0]
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        rest = self._accounts(rule.account) if rule.account else self._rest
        status = rest.request("POST", REVIEWS, body=review, timeout=_TIMEOUT).json().get("status") or {}
        return bool(status.get("allowed"))

    def _log(self, missing: tuple[Rule, ...]) -> None:
        for rule in missing:
            if rule not in self._missing:
                verbs = ", ".join(rule.verbs)
                log.error(
                    "missing permission: %s on %s. Without it %s. Fix: %s",
                    verbs, rule.resource, rule.consequence, rule.fix(),
                )  # fmt: skip
        if self._missing and not missing:
            log.info("all permissions are granted now")
        self._missing = missing


def _merged(missing: Sequence[Rule]) -> tuple[Rule, ...]:
    """One rule for each resource and place, with the consequences for each controller.

    A rule for one namespace is part of the one for all namespaces if that has its verbs."""
    merged: dict[tuple[str, str, str, str], Rule] = {}
    # Those for all namespaces first.
    for rule in sorted(missing, key=lambda rule: rule.namespace != ""):
        place = rule.namespace
        whose = rule.account
        everywhere = merged.get((whose, rule.group, rule.resource, ""))
        if everywhere is not None and set(rule.verbs) <= set(everywhere.verbs):
            place = ""
        known = merged.get((whose, rule.group, rule.resource, place))
        if known is None:
            merged[whose, rule.group, rule.resource, place] = rule
            continue
        consequences = dict.fromkeys([*known.consequence.split("; "), *rule.consequence.split("; ")])
        merged[whose, rule.group, rule.resource, place] = attrs.evolve(
            known, verbs=tuple(dict.fromkeys([*known.verbs, *rule.verbs])), consequence="; ".join(consequences)
        )
    return tuple(merged.values())
