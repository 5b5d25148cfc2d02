"""The cloud of a cluster: the daemon of examples/localcloud, started, asked, and taken away."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from localcloud.client import ApiError, Client
from localcloud.layout import Layout

from tests.lab.envtest.programs import Programs

_DISTRIBUTION = Path(__file__).parents[3] / "examples" / "localcloud"
_PORT = 8090
_SECONDS = 60.0


class LocalCloud:
    """One daemon, and what it made in the kernel. For one thread at a time, but for `call`."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.url = f"http://{layout.host_address}:{_PORT}"
        self._programs: Programs | None = None

    @property
    def token(self) -> str:
        return (self.layout.folder / "token").read_text().strip()

    def start(self) -> None:
        """Start the daemon; raises RuntimeError with the end of its log when it does not answer in
        60 s."""
        self.layout.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._programs = Programs(self.layout.folder)
        self._programs.spawn("localcloud", [*self._command("serve"), "--verbose"], env=_env())
        deadline = time.monotonic() + _SECONDS
        while not self._answers():
            if self._programs.process("localcloud").poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the local cloud does not start:\n{self._programs.log_tail()}")
            time.sleep(0.1)

    def destroy(self) -> None:
        """End the daemon and all machines, whoever started them, and remove what is in the kernel.
        May be called twice. Raises RuntimeError."""
        if self._programs is not None:
            self._programs.end("localcloud")
        command, deadline = self._command("destroy"), time.monotonic() + _SECONDS
        while True:
            done = subprocess.run(command, env={**os.environ, **_env()}, capture_output=True, text=True)
            if done.returncode == 0:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"the local cloud cannot be removed: {done.stderr.strip()}")
            time.sleep(0.5)  # the daemon of a start that was killed is just ending

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The answer to a request to the cloud's API. Raises localcloud.client.ApiError."""
        return Client(self.url, self.token).call(method, path, body)

    def machines(self) -> dict[str, dict[str, Any]]:
        """All machines, by name."""
        return {one["name"]: one for one in self.call("GET", "/v1/machines")["machines"]}

    def create_machine(self, name: str, user_data: str, *, zone: str, **more: object) -> dict[str, Any]:
        """`more` are other fields of the API's body."""
        body = {"name": name, "type": "medium", "zone": zone, "userData": user_data, **more}
        return self.call("POST", "/v1/machines", body)

    def enter(self, name: str, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` inside a machine. Raises KeyError, ApiError."""
        machine_id = self.machines()[name]["id"]
        return [*self.call("GET", f"/v1/machines/{machine_id}/enter")["command"], *command]

    def _answers(self) -> bool:
        try:
            self.call("GET", "/v1/machines")
        except (ApiError, OSError):
            return False
        return True

    def _command(self, command: str) -> list[str]:
        layout = self.layout
        place = {"state": layout.folder, "name": layout.name, "base": layout.base, "pool": layout.pool}
        return [sys.executable, "-m", "localcloud", command, *(f"--{key}={value}" for key, value in place.items())]


def _env() -> dict[str, str]:
    return {"PYTHONPATH": str(_DISTRIBUTION)}
