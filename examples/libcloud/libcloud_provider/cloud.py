"""One cloud behind one driver of libcloud: every question goes through `Cloud.ask`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from cloudprovider import CloudProviderError, current_call
from libcloud_provider.arguments import driver_class
from libcloud_provider.connections import Drivers, bound, watched
from libcloud_provider.errors import answered, swallowed

T = TypeVar("T")


class Cloud:
    """A driver with its arguments. Asks nothing by itself. Thread-safe."""

    def __init__(
        self, driver: str, place: tuple[str, str], arguments: Mapping[str, Any], credentials: Mapping[str, str]
    ) -> None:
        self.driver = driver
        self._kind = driver_class(place)
        bound(self._kind)
        self._arguments = dict(arguments)
        self._credentials = dict(credentials)
        self._secrets: set[str] = set()
        self._drivers = Drivers(self._make)

    def ask(self, what: str, question: Callable[[Any], T]) -> T:
        """The answer of a driver that no other thread uses meanwhile. `what` begins the error.

        Raises the contract's errors alone; also where the driver returned although the cloud failed
        a request of the question, because its answer may lack something.
        """
        current_call().check()
        with answered(self.driver, what, self._secrets), watched() as failures, self._drivers.borrow() as driver:
            answer = question(driver)
            if failures:
                raise swallowed(self.driver, what, failures)
            return answer

    def _make(self) -> Any:
        secrets = {name: _secret(name, path) for name, path in self._credentials.items()}
        self._secrets.update(secrets.values())  # also those before a rotation
        return self._kind(**self._arguments, **secrets)


def _secret(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as exc:
        why = (exc.strerror if isinstance(exc, OSError) else None) or "not UTF-8 text"
        raise CloudProviderError(f"cannot read {path}, the file of the credential {name}: {why}") from None
