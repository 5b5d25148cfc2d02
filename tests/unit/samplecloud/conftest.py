"""Puts the plugin's source on the path: it is a distribution of its own, installed by an
integration test only."""

from __future__ import annotations

import sys
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "examples" / "samplecloud"
if str(SOURCE) not in sys.path:
    sys.path.append(str(SOURCE))
