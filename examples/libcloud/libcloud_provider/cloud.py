"""One cloud behind one driver of libcloud: every question goes through `Cloud.ask`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote_plus

from cloudprovider import CloudProviderError, current_call
from libcloud_provider.arguments import driver_class
from libcloud_provider.connections import Drivers, bound, watched
from libcloud_provider.errors import NOT_FOUND, answered, swallowed

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
        answer: T = self._ask(what, question)
        return answer

    def ask_about_one(self, what: str, about: str, question: Callable[[Any], T], gone: str) -> T | None:
        """As `ask`; None where the cloud answered "not found" to a request that has `about` in its
        URL: by an HTTP 404, or by an error with the pattern `gone` in it, if that is not empty."""
        answer: T | None = self._ask(what, question, about, gone)
        return answer

    def _ask(self, what: str, question: Callable[[Any], Any], about: str = "", gone: str = "") -> Any:
        current_call().check()
        with answered(self.driver, what, self._secrets), watched() as watch:
            try:
                with self._drivers.borrow() as driver:
                    answer = question(driver)
            except Exception:
                # A 404 of the login, or of a proxy before it, says nothing about a machine.
                is_about = about and about in unquote_plus(watch.url)
                if is_about and (watch.status == NOT_FOUND or (gone and re.search(gone, watch.text))):
                    return None
                raise
            if watch.failures:
                raise swallowed(self.driver, what, watch.failures)
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
