"""Every version of objects that a real API server had in a span of time, by a kubectl that watches.

What was there for a moment only is among them, which somebody who asks again and again may miss.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from typing import Any, Self

from tests.lab.cluster.cluster import Cluster
from tests.lab.envtest.build import cluster_program

SECONDS = 2.0
"""Until a watch has begun, and until it has written what it was told last."""

JSON = dict[str, Any]


class Watched:
    """What ``kubectl get ARGUMENTS --watch`` saw while it was entered: `versions`, oldest first."""

    def __init__(self, cluster: Cluster, *arguments: str) -> None:
        self.versions: list[JSON] = []
        head = [str(cluster_program("kubectl")), f"--kubeconfig={cluster.kubeconfig}", "get"]
        self._command = [*head, *arguments, "--watch", "--output=json"]

    def __enter__(self) -> Self:
        self._file = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(self._command, stdout=self._file)
        time.sleep(SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(SECONDS)
        ended = self._process.poll()
        self._process.terminate()
        self._process.wait()
        with self._file as file:
            file.seek(0)
            self.versions = documents(file.read())
        if ended is not None:
            raise RuntimeError(f"{' '.join(self._command)} ended with {ended} while it should watch")


def documents(text: str) -> list[JSON]:
    """The objects of a text of JSON documents, one behind the other; half a one at its end is left
    out. Pure."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        try:
            document, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            break
        found.append(document)
    return found
