"""MutatingWebhookConfigurations and ValidatingWebhookConfigurations: defaults, validation, generation.

`webhooks` calls what they describe. Follows pkg/apis/admissionregistration and pkg/registry/admissionregistration of
k8s.io/kubernetes. Match conditions are expressions in CEL, which this server cannot evaluate: it refuses them with 501.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from cloudprovider.testing.apiserver import labelselectors
from cloudprovider.testing.apiserver.errors import (
    JSON,
    Cause,
    duplicate,
    invalid_value,
    not_implemented,
    not_supported,
    required,
)
from cloudprovider.testing.apiserver.kinds import Strategy
from cloudprovider.testing.apiserver.names import dns_subdomain

_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES: Final = ("*", "Cluster", "Namespaced")
_ENUMERATIONS: Final = (
    ("failurePolicy", ("Fail", "Ignore")),
    ("matchPolicy", ("Equivalent", "Exact")),
)
_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
_REVIEW_VERSIONS: Final = ("v1", "v1beta1")
_LABEL_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035_RULE: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_URL_FORM: Final = "; desired format: https://host[/path]"


class WebhookConfigStrategy(Strategy):
    """Rules of both kinds of configuration; `mutating` ones have a reinvocationPolicy. There is no status."""

    allow_unconditional_update = False
    has_core_metadata = False

    def __init__(self, *, mutating: bool) -> None:
        self._mutating = mutating

    def default(self, obj: JSON) -> None:
        """Fill in each webhook's policies, selectors and timeout, and the scope of its rules."""
        hooks = obj.get("webhooks")
        if hooks:
            obj["webhooks"] = [self._defaulted(hook) for hook in hooks]

    def _defaulted(self, hook: JSON) -> JSON:
        filled: JSON = {
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "timeoutSeconds": 10,
            **({"reinvocationPolicy": "Never"} if self._mutating else {}),
            **hook,
        }
        if hook.get("rules"):
            filled["rules"] = [{"scope": "*", **rule} for rule in hook["rules"]]
        service = hook["clientConfig"].get("service")
        if service is not None:
            filled["clientConfig"] = {**hook["clientConfig"], "service": {"port": 443, **service}}
        return filled

    def prepare_create(self, obj: JSON) -> None:
        """The first generation."""
        obj["metadata"]["generation"] = 1

    def prepare_update(self, obj: JSON, old: JSON) -> None:
        """Changed webhooks are a new generation."""
        if obj.get("webhooks") != old.get("webhooks"):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def validate(self, obj: JSON) -> list[Cause]:
        """Names, rules, policies, selectors, and how each webhook is reached."""
        causes: list[Cause] = []
        names: set[str] = set()
        for at, hook in enumerate(obj.get("webhooks") or ()):
            path = f"webhooks[{at}]"
            causes += self._webhook(hook, path) + _review_versions(hook.get("admissionReviewVersions") or [], path)
            name = hook["name"]
            if name and name in names:
                causes.append(duplicate(f"{path}.name", name))
            names.add(name)
        return causes

    def _webhook(self, hook: JSON, path: str) -> list[Cause]:
        if hook.get("matchConditions"):
            raise not_implemented("matchConditions of webhooks: it cannot evaluate CEL expressions")
        causes = _name(hook["name"], f"{path}.name")
        for at, rule in enumerate(hook.get("rules") or ()):
            causes += _rule(rule, f"{path}.rules[{at}]")
        for field, known in _ENUMERATIONS:
            if hook[field] not in known:
                causes.append(not_supported(f"{path}.{field}", hook[field], known))
        effects = hook.get("sideEffects")
        if effects is None:
            causes.append(required(f"{path}.sideEffects", f"must specify one of {', '.join(_SIDE_EFFECTS)}"))
        elif effects not in _SIDE_EFFECTS:
            causes.append(not_supported(f"{path}.sideEffects", effects, _SIDE_EFFECTS))
        if not 1 <= hook["timeoutSeconds"] <= 30:
            why = "the timeout value must be between 1 and 30 seconds"
            causes.append(invalid_value(f"{path}.timeoutSeconds", hook["timeoutSeconds"], why))
        for field in ("namespaceSelector", "objectSelector"):
            causes += labelselectors.validate(hook[field], f"{path}.{field}")
        if self._mutating and hook["reinvocationPolicy"] not in ("IfNeeded", "Never"):
            causes.append(
                not_supported(f"{path}.reinvocationPolicy", hook["reinvocationPolicy"], ["IfNeeded", "Never"])
            )
        return causes + _client_config(hook["clientConfig"], f"{path}.clientConfig")

    def validate_name(self, name: str) -> list[str]:
        """A DNS subdomain."""
        return dns_subdomain(name)


def _name(name: str, path: str) -> list[Cause]:
    if not name:
        return [required(path)]
    wrong = dns_subdomain(name)
    if wrong:
        return [invalid_value(path, name, ",".join(wrong))]
    if name.count(".") < 2:
        return [invalid_value(path, name, "should be a domain with at least three segments separated by dots")]
    return []


def _review_versions(versions: Sequence[str], path: str) -> list[Cause]:
    path = f"{path}.admissionReviewVersions"
    if not versions:
        return [required(path, f"must specify one of {', '.join(_REVIEW_VERSIONS)}")]
    causes: list[Cause] = []
    for at, version in enumerate(versions):
        if version in versions[:at]:
            causes.append(invalid_value(f"{path}[{at}]", version, "duplicate version"))
        elif not _LABEL_1035.fullmatch(version):
            causes.append(invalid_value(f"{path}[{at}]", version, _LABEL_1035_RULE))
    if not any(version in _REVIEW_VERSIONS for version in versions):
        why = f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"
        causes.append(invalid_value(path, list(versions), why))
    return causes


def _rule(rule: JSON, path: str) -> list[Cause]:
    causes: list[Cause] = []
    operations = rule.get("operations") or []
    if not operations:
        causes.append(required(f"{path}.operations"))
    causes += _alone(operations, f"{path}.operations", "operations")
    for at, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            causes.append(not_supported(f"{path}.operations[{at}]", operation, _OPERATIONS))
    for field, shown in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values = rule.get(field) or []
        if not values:
            causes.append(required(f"{path}.{field}"))
        causes += _alone(values, f"{path}.{field}", shown)
        if field == "apiVersions":
            causes += [required(f"{path}.{field}[{at}]") for at, value in enumerate(values) if not value]
    causes += _resources(rule.get("resources") or [], f"{path}.resources")
    if rule["scope"] not in _SCOPES:
        causes.append(not_supported(f"{path}.scope", rule["scope"], _SCOPES))
    return causes


def _alone(values: list[str], path: str, shown: str) -> list[Cause]:
    if len(values) > 1 and "*" in values:
        return [invalid_value(path, values, f"if '*' is present, must not specify other {shown}")]
    return []


def _resources(resources: list[str], path: str) -> list[Cause]:
    causes = [] if resources else [required(path)]
    whole: set[str] = set()  # x of x/*
    everywhere: set[str] = set()  # x of */x
    for at, text in enumerate(resources):
        resource, slash, sub = text.partition("/")
        if not text:
            causes.append(required(f"{path}[{at}]"))
        if not slash:
            continue
        if resource in whole:
            why = f"if '{resource}/*' is present, must not specify {text}"
            causes.append(invalid_value(f"{path}[{at}]", text, why))
        if sub in everywhere:
            causes.append(invalid_value(f"{path}[{at}]", text, f"if '*/{sub}' is present, must not specify {text}"))
        if sub == "*":
            whole.add(resource)
        if resource == "*":
            everywhere.add(sub)
    if len(resources) > 1 and "*/*" in resources:
        causes.append(invalid_value(path, resources, "if '*/*' is present, must not specify other resources"))
    plain = [text for text in resources if text and "/" not in text]
    if "*" in plain and plain[-1] != "*":  # the real server looks at the last one only
        why = "if '*' is present, must not specify other resources without subresources"
        causes.append(invalid_value(path, resources, why))
    return causes


def _client_config(config: JSON, path: str) -> list[Cause]:
    url, service = config.get("url"), config.get("service")
    if url is not None and service is None:
        return _url(url, f"{path}.url")
    if service is not None and url is None:
        return _service(service, f"{path}.service")
    return [required(path, "exactly one of url or service is required")]


def _url(url: str, path: str) -> list[Cause]:
    try:
        parts = urlsplit(url)
        user, _, _ = parts.netloc.rpartition("@")
        host = parts.netloc.rpartition("@")[2]
    except ValueError as error:
        return [required(path, f"url must be a valid URL: {error}{_URL_FORM}")]
    causes: list[Cause] = []
    if parts.scheme != "https":
        causes.append(invalid_value(path, parts.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}"))
    if not host:
        causes.append(invalid_value(path, host, f"host must be specified{_URL_FORM}"))
    if user:
        causes.append(invalid_value(path, user, "user information is not permitted in the URL"))
    if parts.fragment:
        causes.append(invalid_value(path, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        causes.append(invalid_value(path, parts.query, "query parameters are not permitted in the URL"))
    return causes


def _service(service: JSON, path: str) -> list[Cause]:
    # The real server mixes up the two names in its answer; so does this one.
    causes = [required(f"{path}.{other}") for field, other in _MIXED_UP if not service[field]]
    if not 1 <= service["port"] <= 65535:
        why = "port is not valid: must be between 1 and 65535, inclusive"
        causes.append(invalid_value(f"{path}.port", service["port"], why))
    where, given = f"{path}.path", service.get("path") or "/"
    if given == "/":
        return causes
    if given == "//":
        return [*causes, invalid_value(where, given, "segment[0] may not be empty")]
    if not given.startswith("/"):
        causes.append(invalid_value(where, given, "must start with a '/'"))
    for at, step in enumerate(given[1:].removesuffix("/").split("/")):
        if not step:
            causes.append(invalid_value(where, given, f"segment[{at}] may not be empty"))
        else:
            causes += [invalid_value(where, given, f"segment[{at}]: {why}") for why in dns_subdomain(step)]
    return causes


_MIXED_UP: Final = (("namespace", "name"), ("name", "namespace"))
