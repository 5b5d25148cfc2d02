"""`make run` without a kubeconfig: sets the stage, performs the story act by act, and sums it up."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from livedemo.nodes import times
from livedemo.scene import Scene
from livedemo.script import Failed, Player
from livedemo.stage import StoryStage
from livedemo.story import LATE, MACHINES, STUMBLE, Story
from livedemo.view import choose

READING_SECONDS = 1.5
"""Before an act's first deed, and after its last check; only where a person watches."""

NEXT = (
    "examples/main.py                   the ten lines of a vendor's own manager",
    "examples/samplecloud/              a provider to copy, in a package of its own",
    "docs/explanation/architecture.md   how a watch event becomes a patch, file by file",
    "make docs                          builds the documentation site",
    "make test                          all tests, also over a real kube-apiserver",
    "make run KUBECONFIG=PATH           initialises the nodes of your own cluster, with a fake cloud",
)


def play(directory: Path) -> None:
    """Tell the story; files go to `directory`. Raises Failed or KeyboardInterrupt."""
    with StoryStage(directory, MACHINES, STUMBLE) as stage:
        story = Story(stage)
        managers = [stage.add_manager("manager A"), stage.add_manager("manager B")]
        print("Two replicas of the cloud-controller-manager, an embedded API server as the cluster, a fake cloud:")
        print("  " + " \\\n      ".join(managers[0].command) + "\n", flush=True)
        for manager in managers:
            manager.start()
        view = choose("Two managers start, and one becomes the leader", [act.title for act in story.acts])
        try:
            stage.wait_for_leader(view)
            player = Player(stage, view, READING_SECONDS if sys.stdout.isatty() else 0.0)
            checks = sum(len(player.perform(act)) for act in story.acts)
            scene = stage.look()
            took = _stop(stage)
            view.show(stage.look())
        finally:
            view.close()
        lines = [f"{checks} checks in {len(story.acts)} acts came true, in {scene.elapsed:.0f} s", *_figures(scene)]
        lines += [f"a new leader {check.took:.1f} s after {signal}" for signal, check in story.takeovers.items()]
        lines.append(f"the last manager ended with exit code 0, {took:.1f} s after SIGTERM")
        view.block("In figures", [f"  {line}" for line in lines])
        view.block("Where to go next", [f"  {line}" for line in NEXT])


def _stop(stage: StoryStage) -> float:
    """Stop the managers that still run; returns the seconds that the slowest took. Raises Failed."""
    longest = 0.0
    for manager in stage.managers:
        if manager.exit_code is None:
            code, took = manager.stop()
            longest = max(longest, took)
            if code != 0:
                raise Failed(f"{manager.name} ended with exit code {code} after SIGTERM{manager.last_words()}")
    return longest


def _figures(scene: Scene) -> Iterator[str]:
    spent, late = times(scene.nodes), scene.node(LATE)
    if spent is not None and late is not None:
        yield f"nodes initialised: median {spent[0]:.1f} s; {late.name}, while nobody led, {late.took or 0:.1f} s"
    changes = sum(row.changes for row in scene.managers)
    yield f"the cloud was changed {changes} times: by {', then '.join(scene.writers)}"
