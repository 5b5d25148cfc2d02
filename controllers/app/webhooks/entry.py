"""What an entry of the catalog of webhooks is made of, and which entries a value of --webhooks turns on.

Stage: before the first one, no I/O. Flags, help and start-up follow from the entries. A vendor passes a longer catalog
to `main(webhooks=...)`. The rules of --webhooks are Go's (k8s.io/cloud-provider options/webhook.go), where no webhook
is on unless one is named, or `*`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from controllers.admission.webhook import Webhook
from controllers.options import display

if TYPE_CHECKING:
    from controllers.admission.handler import Handler
    from controllers.app.entry import Context

__all__ = ["WebhookEntry", "enabled", "problems_of"]


@attrs.frozen(kw_only=True)
class WebhookEntry:
    """One webhook, its classes of options, and how its handler is built.

    `construct` is called once per run, on every replica, when the provider is initialised. None: with this provider it
    has nothing to do, and the log says why. What it raises ends the start.
    """

    webhook: Webhook
    construct: Callable[[Context], Handler | None]
    options: tuple[type[Any], ...] = ()
    on_by_default: bool = True
    """Whether `*` turns it on."""

    @property
    def name(self) -> str:
        """As in --webhooks."""
        return self.webhook.name


def enabled(words: Sequence[str], catalog: Sequence[WebhookEntry]) -> list[WebhookEntry]:
    """The entries that a value of --webhooks turns on, in the catalog's order. Unknown words turn on nothing."""
    return [
        entry
        for entry in catalog
        if f"-{entry.name}" not in words and (entry.name in words or ("*" in words and entry.on_by_default))
    ]


def problems_of(words: Sequence[str], catalog: Sequence[WebhookEntry]) -> list[str]:
    """What is wrong with a value of --webhooks: unknown names and contradictions."""
    known = {entry.name for entry in catalog}
    names = ", ".join(sorted(known)) or "none"
    problems = [
        f"no webhook is called {display(word.removeprefix('-'))!r}; known: {names}"
        for word in words
        if word != "*" and word.removeprefix("-") not in known
    ]
    both = sorted(name for name in known if name in words and f"-{name}" in words)
    return [*problems, *(f"{name} is both asked for and left out" for name in both)]
