"""The first lists, asked for while the rest of the program is imported.

The informers list in threads of their own: the API server takes longer to answer than this process
to import the provider and the controllers. Nothing is written and no controller hears of anything:
the manager takes the informers over as its own. Little is imported here, on purpose: neither models
nor controllers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from controllers.registration.entry import ControllerEntry
from controllers.runtime.api import ClientBuilder
from controllers.runtime.cache import InformerFactory
from controllers.runtime.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

IDENTITY: Final = "shared-informers"
"""Whose client reads the caches, as in Go."""


def make(
    clients: ClientBuilder,
    entries: Sequence[ControllerEntry],
    clock: Clock = SYSTEM_CLOCK,
) -> InformerFactory:
    """The caches that these controllers share, which begin to fill. Raises RuntimeError where the
    system has no thread left."""
    informers = InformerFactory(clients.rest(IDENTITY), metrics=clients.metrics, clock=clock)
    for entry in entries:
        # The kinds alone, not the controllers: those take the time that is to be saved.
        for resource in entry.informers():
            informers.warm(resource)
    return informers


def begin(clients: ClientBuilder, entries: Sequence[ControllerEntry]) -> InformerFactory | None:
    """`make`, for a manager that is still to be built; None where the system has no thread left,
    which the manager then reports."""
    try:
        return make(clients, entries)
    except RuntimeError as error:
        log.debug("the first lists wait for the manager: %s", error)
        return None
