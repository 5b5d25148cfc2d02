"""What a test knows to be there, where its type says that it may be None."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def there(found: T | None) -> T:
    """The same, which must not be None."""
    assert found is not None
    return found
