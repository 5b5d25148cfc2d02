"""Models of the official client, compared more closely than `==` does."""

from __future__ import annotations

from typing import Any


def given_fields(model: Any) -> Any:
    """The fields of a model that were given, also as null, and of all models below it."""
    if hasattr(model, "__pydantic_fields_set__"):
        return {name: given_fields(getattr(model, name)) for name in model.__pydantic_fields_set__}
    if isinstance(model, list):
        return [given_fields(one) for one in model]
    if isinstance(model, dict):
        return {key: given_fields(one) for key, one in model.items()}
    return None
