"""The official client's package `kubernetes`, without what its top imports but hardly anybody uses.

`kubernetes/__init__.py` imports websockets, OAuth, `requests` and the client's own informers: half
of the time that a start takes, and 15 MB. `import_lightly` puts the same package in place and
leaves its `__init__.py` for the first one who asks for something that it would have made. All below
it is imported as ever: classes and modules are the same for everybody, in any order and thread."""

from __future__ import annotations

import importlib
import sys
import threading
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, Final

PACKAGE: Final = "kubernetes"


class _Package(ModuleType):
    """A package whose `__init__.py` has not run. Any thread may ask it for anything."""

    def __getattr__(self, name: str) -> Any:
        # The import system's own locks see to threads that ask at the same time. One of ours could
        # be waited for in a circle by two threads that import modules of the package.
        if not name.startswith("_") and find_spec(f"{self.__name__}.{name}") is not None:
            return importlib.import_module(f"{self.__name__}.{name}")
        whole = getattr(_running, "whole", None)
        if whole is None:
            self._run()
            return getattr(self, name)
        if name in vars(whole):  # what its __init__.py imports asks for what that has made so far
            return vars(whole)[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        if getattr(_running, "whole", None) is None:
            self._run()
        return sorted(vars(self))

    def _run(self) -> None:
        """Run the package's `__init__.py`; afterwards this is an ordinary module."""
        spec = self.__spec__
        assert spec is not None
        assert spec.loader is not None
        # In a namespace of its own, so that no thread needs to wait for another: where two come
        # here at once both run it, and find the same modules.
        _running.whole = whole = module_from_spec(spec)
        try:
            spec.loader.exec_module(whole)
        finally:
            _running.whole = None
        for name, value in vars(whole).items():
            self.__dict__.setdefault(name, value)
        self.__class__ = ModuleType  # type: ignore[assignment]  # as the import system made it


_running = threading.local()  # `whole`: the namespace of the __init__.py that this thread runs


def import_lightly() -> None:
    """Import the package `kubernetes` without running its `__init__.py`.

    For a program, at its start: a no-op where the package is imported already or missing."""
    if PACKAGE in sys.modules:
        return
    spec = find_spec(PACKAGE)
    if spec is None or spec.loader is None:
        return
    package = module_from_spec(spec)
    package.__class__ = _Package
    sys.modules.setdefault(PACKAGE, package)
