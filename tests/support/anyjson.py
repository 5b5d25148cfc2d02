"""Any JSON, for Hypothesis: small trees, as most mistakes need no large ones."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

TEXT = st.text(max_size=8)
SCALARS: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers() | TEXT


def json_values(
    scalars: st.SearchStrategy[Any] = SCALARS, keys: st.SearchStrategy[str] = TEXT
) -> st.SearchStrategy[Any]:
    """Scalars, and lists and objects of them."""
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=8,
    )


def in_order(value: Any) -> Any:
    """The same with sorted keys: the `repr` of two such is equal where true is not 1, nor 1 1.0."""
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value)}
    return [in_order(one) for one in value] if isinstance(value, list) else value
