"""`make run` without a kubeconfig: sets the stage, performs the story act by act, and sums it up."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from livedemo.nodes import times
from livedemo.scene import Scene
from livedemo.script import Check, Failed, Player
from livedemo.stage import StoryStage
from livedemo.story import MACHINES, STUMBLE, Story
from livedemo.view import choose

READING_SECONDS = 1.5
"""Before an act's first deed, and after its last check; only where a person watches."""

NEXT = (
    "examples/main.py           the ten lines of a vendor's own manager",
    "examples/samplecloud/      a provider to copy, in a package of its own",
    "docs/architecture.md       how a watch event becomes a patch, file by file",
    "make test                  all tests, also over a real kube-apiserver",
    "make run KUBECONFIG=PATH   initialises the nodes of your own cluster, with a fake cloud",
)


def play(directory: Path) -> None:
    """Tell the story; files go to `directory`. Raises Failed or KeyboardInterrupt."""
    with StoryStage(directory, MACHINES, STUMBLE) as stage:
        story = Story(stage)
        manager = stage.add_manager("manager A")
        print("The cloud-controller-manager, with an embedded API server as the cluster and a fake cloud:")
        print("  " + " \\\n      ".join(manager.command) + "\n", flush=True)
        manager.start()
        view = choose("The manager starts", [act.title for act in story.acts])
        try:
            stage.wait_ready(view, manager)
            player = Player(stage, view, READING_SECONDS if sys.stdout.isatty() else 0.0)
            checks = [(act.title, player.perform(act)) for act in story.acts]
            scene = stage.look()
            code, took = manager.stop()
            if code != 0:
                raise Failed(f"{manager.name} ended with exit code {code} after SIGTERM{manager.last_words()}")
            view.show(stage.look())
        finally:
            view.close()
        view.block("In figures", [f"  {line}" for line in _figures(scene, checks, took)])
        view.block("Where to go next", [f"  {line}" for line in NEXT])


def _figures(scene: Scene, acts: Sequence[tuple[str, Sequence[Check]]], took: float) -> list[str]:
    spent = times(scene.nodes)
    lines = [f"{sum(len(checks) for _, checks in acts)} checks in {len(acts)} acts held, in {scene.elapsed:.0f} s"]
    if spent is not None:
        lines.append(f"nodes initialised: median {spent[0]:.2f} s, longest {spent[1]:.2f} s")
    figures = scene.figures
    lines.append(f"{figures.cloud_calls} cloud calls, {figures.writes} writes, {figures.events} Event writes")
    lines.append(f"the manager drained and ended with 0, {took:.1f} s after SIGTERM")
    return lines
