"""Admission webhooks: which of them a write concerns, in which order they are asked, and what their answers change.

`operations` makes one Review for each write where there are webhook configurations in the store, and asks it twice:
`mutate` before the kind's own rules, `validate` after them. The calls themselves are in `webhookcalls`. Follows
k8s.io/apiserver pkg/admission/plugin/webhook (generic, mutating, validating) and pkg/admission/reinvocation.go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import attrs

from cloudprovider.testing.apiserver import labelselectors
from cloudprovider.testing.apiserver.errors import JSON, StatusError, bad_request, not_implemented, quote
from cloudprovider.testing.apiserver.patching import PatchError, json_patch
from cloudprovider.testing.apiserver.schema import Context, DecodeError
from cloudprovider.testing.apiserver.store import Store
from cloudprovider.testing.apiserver.webhookcalls import AddressOf, AdmissionRequest, Answer, CallFailed, call

GROUP: Final = "admissionregistration.k8s.io"
MUTATING: Final = "mutatingwebhookconfigurations"
VALIDATING: Final = "validatingwebhookconfigurations"
_TWINS: Final = {("", "events"): "events.k8s.io", ("events.k8s.io", "events"): ""}
"""Resources that another group shows too."""
_LONGEST: Final = 34.0
"""Seconds that a write may take with all its webhooks."""


Identity = tuple[str, str, int]
"""What tells a webhook from all others: its configuration, its name, its place there."""


@attrs.frozen
class Hook:
    """One webhook of a configuration."""

    identity: Identity
    spec: JSON
    mutating: bool

    @property
    def name(self) -> str:
        """Its name in messages."""
        return str(self.spec["name"])

    @property
    def may_fail(self) -> bool:
        """Does a failed call count as an answer that allows?"""
        return bool(self.spec["failurePolicy"] == "Ignore")


class Webhooks:
    """The webhooks of one server. `services` maps "namespace/name:port" to the "host:port" that stands for it."""

    def __init__(self, store: Store, services: Mapping[str, str]) -> None:
        self._store = store
        self._services = services

    def review(self, request: AdmissionRequest) -> Review | None:
        """What the webhooks have to say to a write, None where there is none to ask.

        Configurations of webhooks are never submitted to webhooks.
        """
        if request.kind.group == GROUP:
            return None
        mutating, validating = self._hooks(MUTATING), self._hooks(VALIDATING)
        if not mutating and not validating:
            return None
        return Review(request, mutating, validating, self._namespace_labels, self._address)

    def _hooks(self, plural: str) -> list[Hook]:
        """The webhooks of one kind of configuration, in the order of the configurations' names."""
        found = self._store.collection(plural)
        if not found.objects:
            return []
        objects, _ = self._store.snapshot(plural)
        return [
            Hook((stored.key, spec["name"], at), spec, plural == MUTATING)
            for stored in objects
            for at, spec in enumerate(stored.object.get("webhooks") or ())
        ]

    def _namespace_labels(self, name: str) -> Mapping[str, str]:
        stored = self._store.get("namespaces", name)
        labels: Mapping[str, str] = (stored.object["metadata"].get("labels") or {}) if stored is not None else {}
        return labels

    def _address(self, namespace: str, name: str, port: int) -> str | None:
        """Where a Service is served: by the table, else where its external name says."""
        stored = self._store.get("services", f"{namespace}/{name}")
        spec = stored.object["spec"] if stored is not None else {}
        outside = f"{spec['externalName']}:{port}" if spec.get("type") == "ExternalName" else None
        return self._services.get(f"{namespace}/{name}:{port}", outside)


class Review:
    """The webhooks' part in one write. For one thread; `warnings` are what they want the client to be told."""

    def __init__(
        self,
        request: AdmissionRequest,
        mutating: list[Hook],
        validating: list[Hook],
        namespace_labels: Callable[[str], Mapping[str, str]],
        address_of: AddressOf,
    ) -> None:
        self._request = request
        self._mutating = mutating
        self._validating = validating
        self._namespace_labels = namespace_labels
        self._address_of = address_of
        self._deadline = time.monotonic() + _LONGEST
        self.warnings: list[str] = []

    def mutate(self, obj: JSON | None, old: JSON | None, built_in: Callable[[JSON], None]) -> JSON | None:
        """Ask the mutating webhooks one after the other; returns the object as they want it.

        Where they changed something, `built_in` (the admission that the server has of its own) is run again, and
        then those webhooks that ask for it once more. Raises StatusError.
        """
        again: set[Identity] = set()
        asked: set[Identity] = set()
        changed = False
        for hook in self._mutating:
            obj, did = self._round(hook, obj, old, again, asked)
            changed = changed or did
        if not changed or obj is None:
            return obj
        fresh = {**obj, "metadata": dict(obj["metadata"])}
        built_in(fresh)
        if fresh != obj:
            again |= asked
            asked.clear()
        obj = fresh
        for hook in self._mutating:
            if hook.identity in again:
                obj, _ = self._round(hook, obj, old, again, asked)
        return obj

    def _round(
        self, hook: Hook, obj: JSON | None, old: JSON | None, again: set[Identity], asked: set[Identity]
    ) -> tuple[JSON | None, bool]:
        """Ask one webhook if it is concerned. A change sends all of `asked` into `again`."""
        if not self._concerns(hook, obj, old):
            return obj, False
        obj, changed = self._mutated(hook, obj, old)
        if changed:
            again |= asked
            asked.clear()
        if hook.spec.get("reinvocationPolicy") == "IfNeeded":
            asked.add(hook.identity)
        return obj, changed

    def _mutated(self, hook: Hook, obj: JSON | None, old: JSON | None) -> tuple[JSON | None, bool]:
        answer = self._ask(hook, obj, old)
        if answer is None or not answer.patch:
            return obj, False
        if obj is None:
            raise _internal(
                f"admission webhook {quote(hook.name)} attempted to modify the object, which is not supported for "
                "this operation"
            )
        kind = self._request.kind
        try:
            patched = json_patch(obj, answer.patch)
            cleaned = kind.struct.clean(patched, None, "", Context())
        except (PatchError, DecodeError) as error:
            raise _internal(str(error)) from error
        head = {"kind": kind.kind, "apiVersion": kind.api_version}
        fresh: JSON = {**head, **cleaned, **head, "metadata": dict(cleaned["metadata"])}
        changed = fresh != obj
        kind.strategy.default(fresh)
        return fresh, changed

    def validate(self, obj: JSON | None, old: JSON | None) -> None:
        """Ask the validating webhooks, all at once; the first one's refusal counts. Raises StatusError."""
        if obj is not None and not self._request.name:  # generated meanwhile
            self._request = attrs.evolve(self._request, name=obj["metadata"]["name"])
        concerned = [hook for hook in self._validating if self._concerns(hook, obj, old)]
        if len(concerned) < 2:
            for hook in concerned:
                self._ask(hook, obj, old)
            return
        with ThreadPoolExecutor(len(concerned), thread_name_prefix="apiserver-webhook") as pool:
            asked = [pool.submit(self._ask, hook, obj, old) for hook in concerned]
        for one in asked:
            one.result()

    # -- one webhook -------------------------------------------------------------------------------------------------

    def _ask(self, hook: Hook, obj: JSON | None, old: JSON | None) -> Answer | None:
        """The answer of a webhook that allows the write; None where it failed and may. Raises StatusError."""
        if self._request.dry_run and hook.spec["sideEffects"] not in ("None", "NoneOnDryRun"):
            raise bad_request(f"admission webhook {quote(hook.name)} does not support dry run")
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise StatusError(504, "Timeout", "Timeout: request did not complete within requested timeout")
        timeout = min(float(hook.spec["timeoutSeconds"]), left)
        try:
            answer = call(hook.spec, hook.mutating, self._request, obj, old, timeout, self._address_of)
        except CallFailed as error:
            if hook.may_fail:
                return None
            raise _internal(f"failed calling webhook {quote(hook.name)}: {error}") from error
        self.warnings += answer.warnings
        if not answer.allowed:
            raise denial(hook.name, answer.status)
        return answer

    def _concerns(self, hook: Hook, obj: JSON | None, old: JSON | None) -> bool:
        """Does the webhook want to be asked about this object?"""
        spec, request = hook.spec, self._request
        rules = spec.get("rules") or ()
        if not any(_rule_fits(rule, request, request.kind.group) for rule in rules):
            other = _TWINS.get((request.kind.group, request.kind.plural))
            if other is None or spec["matchPolicy"] != "Equivalent":
                return False
            if not any(_rule_fits(rule, request, other) for rule in rules):
                return False
            raise not_implemented(
                f"webhook {hook.name} with matchPolicy Equivalent: it cannot show {request.kind.plural} of "
                f"{request.kind.api_version} as those of the other group; name both groups in its rules"
            )
        selector = spec["objectSelector"]
        if not labelselectors.selects_everything(selector):
            candidates = [one for one in (obj, old) if one is not None]
            if not any(labelselectors.matches(selector, _labels(one)) for one in candidates):
                return False
        return self._namespace_fits(spec["namespaceSelector"], obj)

    def _namespace_fits(self, selector: JSON, obj: JSON | None) -> bool:
        request = self._request
        if labelselectors.selects_everything(selector) or not request.namespace:
            return True
        own = request.kind.plural == "namespaces" and not request.subresource and request.operation != "DELETE"
        labels = _labels(obj) if own and obj is not None else self._namespace_labels(request.namespace)
        return labelselectors.matches(selector, labels)


def _labels(obj: JSON) -> Mapping[str, str]:
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    return labels


def _rule_fits(rule: JSON, request: AdmissionRequest, group: str) -> bool:
    kind = request.kind
    if rule["scope"] != "*" and (rule["scope"] == "Namespaced") is not kind.namespaced:
        return False
    return (
        _names(rule["operations"], request.operation)
        and _names(rule["apiGroups"], group)
        and _names(rule["apiVersions"], kind.version)
        and any(_resource_fits(text, kind.plural, request.subresource) for text in rule["resources"])
    )


def _names(values: Iterable[str], wanted: str) -> bool:
    return any(value in ("*", wanted) for value in values)


def _resource_fits(text: str, plural: str, subresource: str) -> bool:
    resource, _, sub = text.partition("/")
    return resource in ("*", plural) and sub in ("*", subresource)


def _internal(message: str) -> StatusError:
    details = {"causes": [{"message": message}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", details=details)


def denial(name: str, status: JSON) -> StatusError:
    """The failure that a webhook's refusal is: its own status, with its name in front of the message."""
    told = f"admission webhook {quote(name)} denied the request"
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    code = status.get("code")
    told += f": {message or reason}" if message or reason else " without explanation"
    return StatusError(
        code if isinstance(code, int) and code >= 400 else 400,
        reason,
        told,
        details=status.get("details"),
        metadata=status.get("metadata"),
    )
