"""The diagrams: the way of a Node and of a Service, the states of a load balancer, two managers and a lease."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from tests.pictures.canvas import ACCENT, BAD, GOOD, INK, LINE, MUTED, PANEL, SOFT, Box, Canvas

__all__ = ["lease", "load_balancer_states", "node_way", "service_way"]

_STAGES = ("1 watch", "2 cache", "3 queue", "4 reconcile", "5 cloud call", "6 patch")


def node_way() -> Figure:
    """One new Node, stage by stage."""
    return _way(
        (
            ("watch.py", "the Node arrives,", "still tainted"),
            ("store.py", "parsed, trimmed", "and kept"),
            ("triggers.py", "its name becomes", "a key, new ones first"),
            ("reconcile.py", "many keys at once,", "one unit of work each"),
            ("gateway.py", "one batch for many,", "with a deadline"),
            ("changes.py", "addresses, labels,", "then the taint off"),
        ),
        "kube-apiserver: a Node with the taint uninitialized",
        "InstancesBatch or InstancesV2",
        "failed: again with back-off, told in an Event",
    )


def service_way() -> Figure:
    """One new Service of type LoadBalancer, stage by stage."""
    return _way(
        (
            ("watch.py", "Service and nodes,", "shared by all"),
            ("store.py", "parsed, trimmed", "and kept"),
            ("triggers.py", "deletions first, then", "those without address"),
            ("decide.py", "wanted and applied", "state: the next step"),
            ("gateway.py", "ensure, update or", "delete; one at a time"),
            ("changes.py", "finalizer before it,", "address after it"),
        ),
        "kube-apiserver: a Service of type LoadBalancer",
        "LoadBalancer",
        "RetryError: again after its time; other failures: back-off and an Event",
    )


def _way(stages: Sequence[tuple[str, str, str]], start: str, capability: str, again: str) -> Figure:
    canvas = Canvas(760, 250)
    top = canvas.box(14, 200, 732, 36, start, size=10)
    boxes: list[Box] = []
    for number, (title, (file, *lines)) in enumerate(zip(_STAGES, stages, strict=True)):
        edge, fill = (ACCENT, SOFT) if number == 4 else (LINE, PANEL)
        box = canvas.box(14 + number * 124, 94, 112, 74, title, (file, *lines), edge=edge, fill=fill, size=9.5)
        if boxes:
            canvas.arrow(boxes[-1].side("right"), box.side("left"), colour=INK)
        boxes.append(box)
    canvas.arrow((boxes[0].middle[0], top.y), boxes[0].side("top"), colour=INK)
    canvas.arrow(boxes[5].side("top"), (boxes[5].middle[0], top.y), colour=INK)
    cloud = canvas.box(
        14 + 4 * 124 - 34, 18, 180, 44, "your provider", (capability,), edge=ACCENT, fill=SOFT, dashed=True
    )
    canvas.arrow((boxes[4].middle[0], boxes[4].y), (boxes[4].middle[0], cloud.y + cloud.height), colour=ACCENT)
    queue, reconcile = boxes[2].middle[0], boxes[3].middle[0]
    canvas.line((reconcile, reconcile, queue), (boxes[3].y, 72, 72), dashed=True)
    canvas.arrow((queue, 72), boxes[2].side("bottom"), dashed=True)
    canvas.text(queue + 62, 52, again if len(again) < 50 else again.replace("; ", ";\n"), size=8, colour=MUTED)
    return canvas.figure


def load_balancer_states() -> Figure:
    """What the service controller knows of one load balancer, and what moves it on."""
    canvas = Canvas(760, 370)
    none = canvas.box(10, 290, 124, 60, "no record", ("finalizer goes on", "before the first call"))
    unsure = canvas.box(194, 290, 140, 60, "UNSURE", ("a call is under way,", "or its end is unknown"))
    confirmed = canvas.box(410, 290, 140, 60, "CONFIRMED", ("the cloud has it as", "the Service wants it"))
    written = canvas.box(410, 160, 140, 60, "WRITTEN", ("address and note are", "on the Service"), edge=GOOD)
    retargeting = canvas.box(610, 160, 140, 60, "RETARGETING", ("only the targets", "are being set"))
    gone = canvas.box(410, 30, 140, 60, "GONE", ("the cloud confirmed", "the deletion"))
    released = canvas.box(194, 30, 140, 60, "RELEASED", ("finalizer and note", "are off"))
    elsewhere = canvas.box(10, 160, 124, 60, "ELSEWHERE", ("another controller", "builds it"), dashed=True)
    canvas.arrow(none.side("right"), unsure.side("left"), colour=INK)
    canvas.text(164, 330, "ensure")
    canvas.arrow(unsure.side("right"), confirmed.side("left"), colour=INK)
    canvas.text(372, 337, "the cloud\nreturned")
    canvas.arrow(confirmed.side("bottom"), written.side("top"), colour=INK)
    canvas.text(488, 255, "write the status", align="left")
    canvas.arrow(written.side("right"), retargeting.side("left"), colour=INK)
    canvas.text(580, 207, "nodes\nchanged")
    canvas.line((retargeting.middle[0],) * 2, (retargeting.y + 60, confirmed.middle[1]), colour=INK, width=1.4)
    canvas.arrow((retargeting.middle[0], confirmed.middle[1]), confirmed.side("right"), colour=INK)
    canvas.text(615, 332, "the cloud has the targets")
    canvas.line((written.x, unsure.middle[0]), (written.middle[1],) * 2, dashed=True, width=1.4)
    canvas.arrow((unsure.middle[0], written.middle[1]), unsure.side("bottom"), dashed=True)
    canvas.text(337, 203, "spec changed, drift,\nor time to repair", colour=MUTED)
    canvas.arrow(written.side("bottom"), gone.side("top"), colour=BAD)
    canvas.text(488, 125, "Service deleted, or of another type: delete", colour=BAD, align="left")
    canvas.arrow(gone.side("left"), released.side("right"), colour=INK)
    canvas.text(372, 72, "write")
    canvas.arrow(unsure.side("left", 0.15), elsewhere.side("top", 0.7), dashed=True)
    canvas.text(66, 262, "ImplementedElsewhere", size=8, colour=MUTED)
    canvas.text(
        662, 60,
        "An error leaves the state as it is:\nthe step is repeated with back-off,\nor after the time of RetryError.",
        size=8, colour=MUTED,
    )  # fmt: skip
    return canvas.figure


def lease() -> Figure:
    """Two managers and a lease: a clean stop, and a leader that loses the API server."""
    canvas = Canvas(760, 470)
    columns = {"manager A": 130, "Lease": 380, "manager B": 630}
    for name, x in columns.items():
        canvas.box(
            x - 75,
            425,
            150,
            32,
            name,
            edge=ACCENT if name == "Lease" else LINE,
            fill=SOFT if name == "Lease" else PANEL,
        )
        canvas.line((x, x), (425, 15), dashed=True)
    a, middle, b = columns.values()

    def active(x: float, top: float, bottom: float, colour: str) -> None:
        canvas.line((x, x), (top, bottom), colour=colour, width=7)

    def message(start: float, end: float, y: float, text: str, colour: str = INK, dashed: bool = False) -> None:
        canvas.arrow((start, y), (end, y), colour=colour, dashed=dashed)
        canvas.text((start + end) / 2, y + 9, text, size=8.5, colour=colour)

    active(a, 405, 285, GOOD)
    message(a, middle, 395, "acquire: held by A")
    message(middle, b, 375, "watch: B stands by, caches filled")
    message(a, middle, 345, "renew, every 2 s")
    canvas.text(a - 14, 345, "writes", size=8.5, colour=GOOD, align="right")
    canvas.text(a - 14, 300, "SIGTERM: finishes\nwork under way", size=8.5, align="right")
    message(a, middle, 285, "release")
    message(middle, b, 268, "watch: no holder")
    active(b, 255, 125, GOOD)
    message(b, middle, 250, "acquire: held by B")
    canvas.text(b + 14, 250, "writes, within\n2 s, no listing", size=8.5, colour=GOOD, align="left")
    message(b, middle, 205, "last renewal that succeeds")
    message(b, middle, 170, "renewals fail", colour=BAD, dashed=True)
    canvas.text(b + 14, 168, "API server\nout of reach", size=8.5, colour=BAD, align="left")
    canvas.text(b + 14, 122, "fence closes: no write\nleaves; B ends with 1", size=8.5, colour=BAD, align="left")
    canvas.line((b - 7, b + 7), (118, 132), colour=BAD, width=2)
    canvas.line((b - 7, b + 7), (132, 118), colour=BAD, width=2)
    canvas.text(a - 14, 125, "A was started again,\nand stands by", size=8.5, align="right")
    canvas.text(a - 14, 72, "nothing new seen for\nthe lease duration", size=8.5, colour=MUTED, align="right")
    message(a, middle, 55, "acquire: held by A")
    active(a, 60, 22, GOOD)
    canvas.text(a - 14, 35, "writes", size=8.5, colour=GOOD, align="right")
    return canvas.figure
