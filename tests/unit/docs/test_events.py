"""The page of Events has each reason that a controller gives, and the pages of symptoms each that
asks for something."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from tests.support.pages import ROOT

PAGE = ROOT / "docs" / "reference" / "events.md"
GUIDES = ROOT / "docs" / "guides"
SYMPTOMS = [GUIDES / "troubleshooting.md", *(GUIDES / "troubleshooting").glob("*.md")]
ELSEWHERE = {"VolumeLabelsContradict", "DiskNotFound", "InvalidVolumeLabels", "FailedToLabelVolume"}
"""On volumes: the page of their controller has them."""


def reasons(*types: str) -> Iterator[tuple[str, str]]:
    """Each reason that follows one of these types in a call, and where that is."""
    for path in sorted((ROOT / "controllers").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call):
                continue
            texts = [one.value if isinstance(one, ast.Constant) else None for one in call.args]
            for kind, reason in pairwise(texts):
                if kind in types and isinstance(reason, str):
                    yield reason, f"{path.relative_to(ROOT)}:{call.lineno}"


def test_each_event_is_on_the_page() -> None:
    found = dict(reasons("Normal", "Warning"))
    assert len(found) > 30, "else calls are not recognised any more"
    rows = set(re.findall(r"`(\w+)`", PAGE.read_text()))
    assert {reason: place for reason, place in found.items() if reason not in rows} == {}


def test_each_warning_is_on_a_page_of_symptoms() -> None:
    rows = set(re.findall(r"`(\w+)`", "".join(page.read_text() for page in SYMPTOMS)))
    warnings = {reason: place for reason, place in reasons("Warning") if reason not in ELSEWHERE}
    assert len(warnings) > 20
    assert {reason: place for reason, place in warnings.items() if reason not in rows} == {}
