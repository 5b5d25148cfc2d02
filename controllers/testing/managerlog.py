"""The log of managers that run in a test's process: its lines as production writes them, for
`ManagerRun.log`. Records go on to other handlers, marked, so that the plugin can keep them from
standing in a test's report twice."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from controllers.process.logs import OURS, TextFormatter

MARK: Final = "in_manager_log"
"""The attribute of a record that is in a ManagerLog."""


class ManagerLog(logging.Handler):
    """Keeps the lines of these loggers and ours, from INFO on, from `open` to `close`.
    Thread-safe."""

    def __init__(self, packages: Iterable[str] = ()) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(TextFormatter())
        self._loggers = [logging.getLogger(name) for name in dict.fromkeys((*OURS, *packages))]
        self._before: list[tuple[logging.Logger, int]] = []
        self._lines: list[str] = []

    @property
    def text(self) -> str:
        """All lines so far."""
        return "".join(f"{line}\n" for line in list(self._lines))

    def open(self) -> None:
        """Begin to listen; nothing happens if it does already."""
        if self._before:
            return
        for logger in self._loggers:
            self._before.append((logger, logger.level))
            if not logger.isEnabledFor(logging.INFO):
                logger.setLevel(logging.INFO)
            logger.addHandler(self)

    def close(self) -> None:
        """Stop listening, and give the loggers the levels that they had. The lines stay."""
        before, self._before = self._before, []
        for logger, level in before:
            logger.removeHandler(self)
            logger.setLevel(level)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record's line."""
        try:
            self._lines.append(self.format(record))
        except Exception:  # noqa: BLE001 - as every handler: a record that cannot be shown must not stop the program
            self.handleError(record)
        setattr(record, MARK, True)
