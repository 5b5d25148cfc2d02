"""LabelSelector objects: what is wrong with one, and whether labels match it.

Used by the validation of webhook configurations and by `webhooks`; pure. The text form of query parameters is in
`selectors`. Follows k8s.io/apimachinery pkg/apis/meta/v1/validation and pkg/labels.
"""

from __future__ import annotations

from collections.abc import Mapping

from cloudprovider.testing.apiserver.errors import JSON, Cause, forbidden_value, invalid_value, required
from cloudprovider.testing.apiserver.metadata import validate_labels
from cloudprovider.testing.apiserver.names import label_value, qualified_name


def validate(selector: JSON, path: str) -> list[Cause]:
    """What is wrong with a selector at this path."""
    causes = validate_labels(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for at, expression in enumerate(selector.get("matchExpressions") or ()):
        causes += _expression(expression, f"{path}.matchExpressions[{at}]")
    return causes


def _expression(expression: JSON, path: str) -> list[Cause]:
    operator, values, key = expression["operator"], expression.get("values") or [], expression["key"]
    causes: list[Cause] = []
    if operator in ("In", "NotIn"):
        if not values:
            causes.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.append(forbidden_value(f"{path}.values", why))
    else:
        causes.append(invalid_value(f"{path}.operator", operator, "not a valid selector operator"))
    causes += [invalid_value(f"{path}.key", key, why) for why in qualified_name(key)]
    for at, value in enumerate(values):
        causes += [invalid_value(f"{path}.values[{at}]", value, why) for why in label_value(value)]
    return causes


def selects_everything(selector: JSON) -> bool:
    """Is nothing demanded?"""
    return not selector.get("matchLabels") and not selector.get("matchExpressions")


def matches(selector: JSON, labels: Mapping[str, str]) -> bool:
    """Do these labels fulfil all that a valid selector demands?"""
    wanted: Mapping[str, str] = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_fulfils(expression, labels) for expression in selector.get("matchExpressions") or ())


def _fulfils(expression: JSON, labels: Mapping[str, str]) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values") or []
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return key not in labels or labels[key] not in values
    return (key in labels) is (operator == "Exists")
