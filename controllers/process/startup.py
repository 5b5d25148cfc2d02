"""What makes a start cheaper: one heap for all threads, and of the official client's package only
what is used.

`kubernetes/__init__.py` imports websockets, OAuth, `requests` and the client's own informers.
`import_lightly` puts the same package in place and leaves its `__init__.py` for the first one that
asks for something that it would have made: a vendor's `import kubernetes` has the whole package."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, Final

PACKAGE: Final = "kubernetes"
_MODELS: Final = f"{PACKAGE}.client.models."
_SAFE: Final = (2, 14)
"""From this version of pydantic on, threads may meet at a class whose building was put off."""
_ARENA_MAX: Final = -8  # M_ARENA_MAX of glibc's malloc.h
_VARIABLES: Final = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")


def share_one_heap() -> None:
    """Have all threads share one heap. To be called before a program starts threads.

    The C library gives each thread a heap of its own and keeps what was freed there: mostly pages
    of lists, 20 to 30 MB at 5,000 nodes. Python's own lock lets one thread at a time ask for memory
    as it is, so none waits for another.
    Nothing happens where an environment variable says how memory is handed out, and with a C
    library other than glibc."""
    # Whoever sets these knows the machine better.
    if any(os.environ.get(name) for name in _VARIABLES):
        return
    import ctypes  # needs 2 ms: not for --help

    try:
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)
    except (OSError, AttributeError):  # no glibc
        return


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

    For a program, at its start: a no-op where the package is imported already or missing.

    Measured with kubernetes 37.0.1 on 2026-11-26, medians of ten: a manager with its default
    controllers has used 1.04 s of CPU and 56 MB two seconds after its start, without this 1.17 s
    and 65 MB. To the first model it is 0.31 s and 36 MB, in place of 0.46 s and 49 MB."""
    if PACKAGE in sys.modules:
        return
    spec = find_spec(PACKAGE)
    if spec is None or spec.loader is None:
        return
    package = module_from_spec(spec)
    package.__class__ = _Package
    if sys.modules.setdefault(PACKAGE, package) is package:
        sys.meta_path.insert(0, _Models())


class _Models:
    """Finds the models' modules, for the import system, so that pydantic builds their validators
    when they are first used. That takes two thirds of the models' import, and most are never used:
    objects in Protobuf are read without them."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith(_MODELS):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader.__class__ is SourceFileLoader:
            spec.loader.__class__ = _PutOff  # the same, but for exec_module
        return spec


class _PutOff(SourceFileLoader):
    _lock: Final = threading.Lock()
    _running = 0

    def exec_module(self, module: ModuleType) -> None:
        import pydantic

        if tuple(map(int, pydantic.VERSION.split(".")[:2])) < _SAFE:
            return super().exec_module(module)
        # It cannot be said of a class from outside, but of all that are made meanwhile. A class
        # that another thread makes at this moment is built at its first use, too.
        with self._lock:
            _PutOff._running += 1
            pydantic.BaseModel.model_config["defer_build"] = True
        try:
            super().exec_module(module)
        finally:
            with self._lock:
                _PutOff._running -= 1
                if not _PutOff._running:
                    del pydantic.BaseModel.model_config["defer_build"]
