"""`python -m tests.pictures FOLDER`: every picture as PNG, in light and dark mode, to be looked at while drawing."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.pictures import pictures
from tests.pictures.canvas import png

folder = Path(sys.argv[1])
for name, draw in pictures().items():
    for mode in ("light", "dark"):
        (folder / f"{name}-{mode}.png").write_bytes(png(draw(), mode))
