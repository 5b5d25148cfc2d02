"""The pictures of the documentation: `make pictures` writes docs/pictures/*.svg.

Each picture is a function that returns SVG. Its colours follow the reader's light or dark theme
(`prefers-color-scheme`), and it has a ground of its own, so that it can be read on any page. 640
units wide, so that the words can be read on a phone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
REPORTS = FOLDER.parent / "reports"
WIDTH = 640
LINE = 19
"""From one line of words to the next."""

STYLE = """\
.ground { fill: #ffffff; stroke: #d5dae1 }
.box { fill: #f2f5f9; stroke: #8793a3 }
.ours { fill: #e3edfd; stroke: #326ce5; stroke-width: 1.5 }
.yours { fill: #fff0cf; stroke: #c98a00; stroke-width: 2 }
.bad { fill: #fde5e3; stroke: #c0392b }
.frame { fill: none; stroke: #8793a3; stroke-dasharray: 5 4 }
.line { fill: none; stroke: #4d5a6b; stroke-width: 1.7 }
.back { stroke-dasharray: 5 4 }
.tip { fill: #4d5a6b }
text { fill: #1c2430; font: 15px system-ui, 'DejaVu Sans', sans-serif; text-anchor: middle }
.bold { font-weight: 700 }
.small { font-size: 13px; fill: #4d5a6b }
.left { text-anchor: start }
@media (prefers-color-scheme: dark) {
.ground { fill: #171b21; stroke: #3a424e }
.box { fill: #232932; stroke: #7d8998 }
.ours { fill: #1b2c4a; stroke: #6f9df5 }
.yours { fill: #43340f; stroke: #e0a92e }
.bad { fill: #47211d; stroke: #e57368 }
.frame { stroke: #7d8998 }
.line { stroke: #aab4c1 }
.tip { fill: #aab4c1 }
text { fill: #e8ecf1 }
.small { fill: #b3bdc9 }
}"""


class Picture:
    """Boxes, arrows and words, in the order in which they are drawn."""

    def __init__(self, height: int, title: str, told: str) -> None:
        self.height = height
        self.title = title
        self.told = told
        self.parts: list[str] = []

    def words(self, x: float, y: float, text: str, kind: str = "") -> None:
        """Lines around this point; the first one is bold where it begins with `*`."""
        lines = text.split("\n")
        top = y - (len(lines) - 1) * LINE / 2 + 5
        for number, line in enumerate(lines):
            look = f"{kind} bold".strip() if line.startswith("*") else kind
            mark = f' class="{look}"' if look else ""
            self.parts.append(f'<text x="{x:g}" y="{top + number * LINE:g}"{mark}>{escape(line.lstrip("*"))}</text>')

    def box(self, x: float, y: float, width: float, height: float, text: str = "", kind: str = "box") -> None:
        self.parts.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7"/>')
        if text:
            self.words(x + width / 2, y + height / 2, text)

    def arrow(self, *points: tuple[float, float], back: bool = False) -> None:
        """A line over these points with a tip at its end; dashed where something comes back."""
        (x1, y1), (x2, y2) = points[-2:]
        right, down = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
        tip = [(x2, y2), *((x2 - 9 * right + 5 * side * down, y2 - 9 * down + 5 * side * right) for side in (-1, 1))]
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline class="line{" back" if back else ""}" points="{path}"/>')
        self.parts.append(f'<polygon class="tip" points="{" ".join(f"{x:g},{y:g}" for x, y in tip)}"/>')

    def svg(self) -> str:
        size = f'viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" height="{self.height}"'
        ground = f'<rect class="ground" x="1" y="1" width="{WIDTH - 2}" height="{self.height - 2}" rx="10"/>'
        head = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title told">',
            f'<title id="title">{escape(self.title)}</title>',
            f'<desc id="told">{escape(self.told)}</desc>',
            f"<style>\n{STYLE}\n</style>",
            ground,
        ]
        return "\n".join([*head, *self.parts, "</svg>", ""])


def stages() -> str:
    """The six stages: a circle from the API server and back to it."""
    picture = Picture(
        300,
        "The six stages",
        "The API server is watched. Each object passes cache, queue, reconcile, a call of your provider, and a patch.",
    )
    picture.box(14, 20, 118, 184, "*API server\n\nNodes,\nServices")
    top, low, width, height = 20, 130, 124, 74
    columns = (170, 334, 498)
    for x, text in zip(
        columns, ("*1 watch\nwhat changed", "*2 cache\nin memory", "*3 queue\none key each"), strict=True
    ):
        picture.box(x, top, width, height, text, "ours")
    low_row = ("*6 patch\nand Event", "*5 cloud call\nin time", "*4 reconcile\none object")
    for x, text in zip(columns, low_row, strict=True):
        picture.box(x, low, width, height, text, "ours")
    upper, lower = top + height / 2, low + height / 2
    picture.arrow((132, upper), (170, upper))
    picture.arrow((294, upper), (334, upper))
    picture.arrow((458, upper), (498, upper))
    picture.arrow((535, 94), (535, 130))
    picture.arrow((585, 130), (585, 94), back=True)
    picture.arrow((498, lower), (458, lower))
    picture.arrow((334, lower), (294, lower))
    picture.arrow((170, lower), (132, lower))
    picture.box(324, 240, 144, 46, "*your provider", "yours")
    picture.arrow((384, 204), (384, 240))
    picture.arrow((408, 240), (408, 204), back=True)
    picture.words(484, 235, "failed: again,\nwith back-off", "small left")
    picture.words(20, 263, "Yours is one box; the rest is here.", "small left")
    return picture.svg()


def flow(picture: Picture, steps: str, x: float, width: float, notes: float) -> None:
    """Boxes from top to bottom, with an arrow between them and a note beside each. A line a box:
    `kind|words|note`, where "/ " begins another line of words."""
    top, height, gap = 20.0, 58.0, 28.0
    for number, step in enumerate(steps.splitlines()):
        kind, text, note = (part.strip().replace("/ ", "\n") for part in step.split("|"))
        if number:
            picture.arrow((x + width / 2, top - gap), (x + width / 2, top))
        picture.box(x, top, width, height, text, kind)
        picture.words(notes, top + height / 2, note, "small left")
        top += height + gap


def node() -> str:
    """A Node from its first minute to its last."""
    steps = """\
box|*The kubelet registers it/ with the taint uninitialized|--cloud-provider=external:/ no pod is placed yet
yours|*Which machine is it?/ your instance_metadata|many nodes in one call,/ if you have InstancesBatch
ours|*Initialised/ addresses, provider ID, labels|the taint goes with the last patch;/ Event Synced; pods are placed
ours|*Kept up to date/ every five minutes|new addresses and labels/ of the cloud follow
yours|*Not Ready: is the machine there?/ your instance_exists|an error means "unknown":/ the Node stays as it is"""
    picture = Picture(
        580,
        "The life of a Node",
        "Registered, initialised, kept up to date; when it is not Ready the cloud is asked about its machine.",
    )
    flow(picture, steps, 20, 300, 340)
    for x, text, kind in (
        (20, "*It runs\nnothing is done", "box"),
        (226, "*It is shut down\ntaint shutdown", "ours"),
        (432, "*Gone, asked twice\nthe Node is deleted", "bad"),
    ):
        picture.arrow((170, 422), (170, 452), (x + 94, 452), (x + 94, 490))
        picture.box(x, 490, 188, 64, text, kind)
    return picture.svg()


def service() -> str:
    """A Service of type LoadBalancer, until it is deleted."""
    steps = """\
box|*Somebody creates a Service/ of type LoadBalancer|
ours|*Finalizer on|so that no load balancer/ is left behind
yours|*Build it, or correct it/ your ensure_load_balancer|Pending while the cloud is at work:/ asked again, no failure
ours|*Its address is on the Service|Event EnsuredLoadBalancer;/ after a change it is built again
yours|*Nodes come and go/ your update_load_balancer|the targets, and nothing else
yours|*The Service is deleted/ your ensure_load_balancer_deleted|again until the cloud confirms/ that nothing is left
ours|*Finalizer off: the Service is gone|"""
    picture = Picture(
        632,
        "The life of a Service of type LoadBalancer",
        "A finalizer first. Your load balancer is built, its targets follow the nodes, and it goes before the Service.",
    )
    flow(picture, steps, 60, 300, 376)
    picture.arrow((60, 307), (30, 307), (30, 221), (60, 221), back=True)
    return picture.svg()


def takeover() -> str:
    """Three ends of a leader, each with what the other replica does meanwhile."""
    picture = Picture(
        502,
        "Who leads, and when another replica takes over",
        "After SIGTERM at once; after a crash, or with the API server out of reach, after the lease duration: 15 s.",
    )
    work, idle, end = ("*writes", "ours"), ("stands by, caches filled", "box"), ("ends", "bad")
    for number, (head, above, below, note) in enumerate(
        (
            (
                "*SIGTERM: a roll-out, a drained node",
                ((230, *work), (110, "finishes work", "ours"), (60, *end)),
                ((340, *idle), (210, *work)),
                "the lease is released: the other one writes within 2 s",
            ),
            (
                "*A crash, kill -9, the machine is gone",
                ((150, *work), (60, "gone", "bad")),
                ((400, "stands by, sees no renewal for 15 s", "box"), (150, *work)),
                "nobody released the lease: it has to expire first",
            ),
            (
                "*The leader cannot reach the API server",
                ((150, *work), (190, "cannot renew for 12 s", "yours"), (60, *end)),
                ((400, "stands by, sees no renewal for 15 s", "box"), (150, *work)),
                "the fence closes before the lease expires: never two that write",
            ),
        )
    ):
        top = 18 + number * 156
        picture.words(20, top + 14, head, "left")
        for row, (name, bars) in enumerate((("A", above), ("B", below))):
            x, y = 56.0, top + 34 + row * 44
            picture.words(34, y + 17, f"*{name}")
            for length, text, kind in bars:
                picture.box(x, y, length, 34, text, kind)
                x += length
        picture.words(56, top + 128, note, "small left")
    picture.arrow((20, 484), (620, 484))
    picture.words(585, 470, "time", "small")
    return picture.svg()


def cluster() -> str:
    """Where the manager runs, and with whom it speaks."""
    picture = Picture(
        420,
        "The manager in a cluster",
        "Two pods of the manager watch the API server. The leader patches objects and calls the cloud.",
    )
    picture.box(14, 14, 612, 262, "", "frame")
    picture.words(30, 32, "*the cluster", "left")
    picture.box(30, 56, 160, 92, "*API server\nNodes, Services,\nthe Lease")
    picture.box(330, 56, 280, 92, "", "ours")
    picture.words(470, 76, "*manager: the leader")
    picture.box(350, 94, 240, 40, "*your provider", "yours")
    picture.arrow((190, 84), (330, 84))
    picture.words(260, 72, "watch", "small")
    picture.arrow((330, 118), (190, 118))
    picture.words(260, 134, "patch, Event", "small")
    picture.box(330, 176, 130, 80, "*manager:\na standby", "ours")
    picture.arrow((110, 148), (110, 196), (330, 196), back=True)
    picture.words(250, 184, "watch only", "small")
    picture.box(30, 216, 270, 44, "*nodes: kubelets and pods")
    picture.arrow((60, 216), (60, 148))
    picture.box(14, 340, 612, 66, "", "frame")
    picture.words(30, 373, "*the cloud", "left")
    picture.box(120, 350, 120, 46, "load balancer")
    picture.box(254, 350, 98, 46, "machines")
    picture.box(366, 350, 84, 46, "routes")
    picture.box(484, 350, 130, 46, "*its API")
    picture.arrow((560, 134), (560, 350))
    picture.words(470, 316, "calls, with deadlines", "small")
    picture.arrow((180, 350), (180, 260))
    picture.words(188, 316, "traffic", "small left")
    return picture.svg()


def benchmarks() -> str:
    """The shares of the page's first table as bars, beside the Go manager's 1."""
    table = (REPORTS / "benchmarks.md").read_text().partition("## The result in short")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([\d.]+)(?: to ([\d.]+))?(?: \([^|]*\))? \|$", table, re.M)
    rows = [row for row in rows if "." in row[1]]  # shares, not counts
    picture = Picture(
        76 + 30 * len(rows),
        "Ours beside the Go manager",
        "Time or CPU as a share of the Go manager's without limits: shorter than the line is faster or less.",
    )
    start, one = 382, 190
    picture.words(start + one, 24, "*Go = 1", "small")
    for number, (work, low, high) in enumerate(rows):
        y, share = 44 + 30 * number, float(high or low)
        picture.words(20, y + 10, work, "small left")
        picture.box(start, y, share * one, 20, f"{low} - {high}" if high else low, "ours")
    picture.parts.append(f'<path class="line back" d="M{start + one},36 V{44 + 30 * len(rows)}"/>')
    picture.words(20, 60 + 30 * len(rows), "shorter is faster, or less", "small left")
    return picture.svg()


def scale() -> str:
    """CPU per node of each phase, a bar for each size of cluster."""
    text = (REPORTS / "scale.md").read_text()
    table = text.partition("### Per node and per Service")[2].partition("<!-- end")[0]
    head, *rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines() if "|" in line]
    columns = {number: name.rpartition(", ")[2] for number, name in enumerate(head) if name.startswith("CPU ms per")}
    shown = [(row[0], [(columns[number], float(row[number])) for number in columns]) for row in rows[1:]]
    most = max(share for _, bars in shown for _, share in bars)
    gap = 22 * len(columns) + 14
    picture = Picture(
        64 + gap * len(shown), "CPU per node", "Milliseconds of CPU for each node: bars of one length mean no growth."
    )
    for number, (phase, bars) in enumerate(shown):
        top = 44 + gap * number
        picture.words(20, top + 10, phase, "small left")
        for place, (size, share) in enumerate(bars):
            picture.words(430, top + 9 + 22 * place, size, "small")
            picture.box(490, top + 22 * place, max(2, share / most * 90), 17, "", "ours")
            picture.words(496 + share / most * 90, top + 9 + 22 * place, f"{share:g}", "small left")
    picture.words(20, 22, "*ms of CPU for each node", "small left")
    return picture.svg()


def faults() -> str:
    """Seconds until all is equal again after each fault, ours and Go's."""
    text = (REPORTS / "faults.md").read_text()
    rows = re.findall(r"^\| (F\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", text, re.M)
    picture = Picture(
        72 + 30 * len(rows),
        "Until cluster and cloud are equal again after a fault",
        "Seconds after the fault's end, ours and Go's; in red what went wrong.",
    )
    longest = 30.0  # bars of more seconds are cut; the figure beside each is true
    start, width = 300, 85
    picture.words(start, 24, "*ours, seconds", "small left")
    picture.words(start + 150, 24, "*Go, seconds; red: wrong", "small left")
    for number, (name, what, ours, go) in enumerate(rows):
        y = 44 + 30 * number
        picture.words(20, y + 10, f"{name} {what}", "small left")
        for left, cell, kind in ((start, ours, "ours"), (start + 150, go, "box")):
            time = re.match(r"([\d.]+) s", cell)
            wrong = ";" in cell or "not equal" in cell
            length = min(float(time[1]), longest) / longest * width if time else 0
            if time:
                picture.box(left, y, max(2, length), 20, "", "bad" if wrong else kind)
            told = time[1] if time else "not equal in time" if "not equal" in cell else "not run"
            picture.words(left + 6 + length, y + 10, told, "small left")
    return picture.svg()


PICTURES: dict[str, Callable[[], str]] = {
    "stages": stages, "node": node, "service": service, "takeover": takeover, "cluster": cluster,
    "benchmarks": benchmarks, "scale": scale, "faults": faults,
}  # fmt: skip


def files() -> dict[Path, Callable[[], str]]:
    """Every picture's file, and what draws it."""
    return {FOLDER / f"{name}.svg": draw for name, draw in PICTURES.items()}


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    for path, draw in files().items():
        path.write_text(draw())
    return 0


if __name__ == "__main__":
    sys.exit(main())
