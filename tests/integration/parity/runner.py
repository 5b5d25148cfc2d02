"""Runs a scenario against one server and normalises what cannot be alike: UIDs, versions, times,
addresses and ports.

Normalised values keep their identity: the first UID seen is `uid-1` on both servers, a version that
did not change between two answers has the same name twice. So a patch that should change nothing
shows.
"""

from __future__ import annotations

import copy
import http.client
import json
import re
import ssl
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs

from tests.integration.parity.model import Scenario, Step

JSON = dict[str, Any]
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_SERVER_TIMES = ("creationTimestamp", "deletionTimestamp", "lastPhaseTransitionTime")


@attrs.frozen
class Server:
    """Where to send requests: `tokens` by the names that steps use."""

    url: str
    tokens: dict[str, str]
    ca_file: Path | None = None


class Runner:
    """One scenario on one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._saved: dict[str, str] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._idle: list[http.client.HTTPConnection] = []
        """Connections for the next steps; one is in the hands of one thread."""

    def run(self, scenario: Scenario) -> list[JSON]:
        """The normalised answers, one for each step."""
        try:
            return [seen for steps in _at_once(scenario.steps) for seen in self._steps(steps)]
        finally:
            for path in scenario.cleanup:
                self._remove(path)
            for connection in self._idle:
                connection.close()

    def _steps(self, steps: Sequence[Step]) -> Iterator[JSON]:
        """What is seen of steps that may be sent at once."""
        first = steps[0]
        if len(steps) == 1:
            yield self._seen(first, *self.send(first))
        else:
            with ThreadPoolExecutor(len(steps)) as pool:
                answers = list(pool.map(self.send, steps))
            for step, answer in zip(steps, answers, strict=True):
                yield self._seen(step, *answer)

    def _seen(self, step: Step, status: int, headers: Mapping[str, str], body: bytes) -> JSON:
        lines = [json.loads(line) for line in body.splitlines()] if _is_watch(step) and status == 200 else None
        if lines is not None:
            answer: Any = lines
        else:
            try:
                answer = json.loads(body) if body else None
            except ValueError:
                answer = body.decode()
        if step.expect is not None and status != step.expect:
            raise AssertionError(f"{step.method} {step.path}: {status} instead of {step.expect}: {body[:2000]!r}")
        for name, path in step.save.items():
            self._saved[name] = str(_look_up(answer, path))
        if step.compare == "nothing":
            return {"status": "not compared"}
        failed = isinstance(answer, dict) and answer.get("kind") == "Status" and answer.get("status") == "Failure"
        if step.compare == "outcome":
            return {"status": status, "reason": answer.get("reason") if failed else None}
        seen: JSON = {"status": status, "answer": self._normalise(answer)}
        if "warning" in headers:
            seen["warning"] = headers["warning"]
        return seen

    def send(self, step: Step) -> tuple[int, dict[str, str], bytes]:
        """Send one step as it stands, with saved values filled in."""
        path = self._fill(step.path)
        if step.query:
            path += "?" + urllib.parse.urlencode({name: self._fill(value) for name, value in step.query.items()})
        body = step.raw
        if body is None and step.body is not None:
            body = self._fill(json.dumps(step.body)).encode()
        headers = {"Accept": step.accept, "Content-Type": step.content_type}
        if step.token:
            headers["Authorization"] = f"Bearer {self._server.tokens.get(step.token, step.token)}"
        if body is None:
            del headers["Content-Type"]
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            connection.request(step.method, path, body, headers)
            response = connection.getresponse()
            answered: dict[str, str] = {}
            for name, value in response.getheaders():
                answered[name.lower()] = f"{answered[name.lower()]}, {value}" if name.lower() in answered else value
            status, found = response.status, _read(response, step)
        except BaseException:
            connection.close()
            raise
        if response.will_close or status >= 400 or _is_watch(step):
            connection.close()  # the server may close it too, a moment later
        else:
            self._idle.append(connection)
        return status, answered, found

    def _connect(self) -> http.client.HTTPConnection:
        parsed = urllib.parse.urlsplit(self._server.url)
        host, port = parsed.hostname or "", parsed.port
        if parsed.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=30)
        context = ssl.create_default_context(cafile=str(self._server.ca_file) if self._server.ca_file else None)
        return http.client.HTTPSConnection(host, port, timeout=30, context=context)

    def _fill(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            return self._saved[match[1]]

        return re.sub(r"\$\{(\w+)\}", value, text)

    def _remove(self, path: str) -> None:
        """Delete an object with whatever finalizers it has."""
        status, _, body = self.send(Step("GET", path))
        if status != 200:
            return
        obj = json.loads(body)
        if obj["metadata"].get("finalizers"):
            self.send(Step("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json"))
        self.send(Step("DELETE", path))

    # -- normalising
    # -------------------------------------------------------------------------------------------------

    def _named(self, kind: str, value: str) -> str:
        known = self._names.get((kind, value))
        if known is None:
            known = f"<{kind}-{sum(1 for one in self._names if one[0] == kind) + 1}>"
            self._names[kind, value] = known
        return known

    def _normalise(self, value: Any, key: str = "", inside: str = "") -> Any:
        if isinstance(value, dict):
            return self._normalise_object(value, inside)
        if isinstance(value, list):
            return [self._normalise(item, key, inside) for item in value]
        if isinstance(value, str):
            return self._normalise_text(value, key)
        if key in ("nodePort", "healthCheckNodePort") and isinstance(value, int) and 30000 <= value <= 32767:
            return self._named("port", str(value))
        return value

    def _normalise_object(self, value: JSON, inside: str) -> JSON:
        if str(value.get("kind", "")).endswith("List") or value.get("type") == "BOOKMARK":
            # Before versions get their names: this one is the whole server's, and others write
            # there too.
            value = copy.deepcopy(value)
            _blank(value, ("metadata", "object.metadata"), ("resourceVersion", "continue"))
        result = {name: self._normalise(item, name, inside) for name, item in value.items()}
        result.pop("managedFields", None)
        result.pop("selfLink", None)
        if "generateName" in value and str(value.get("name", "")).startswith(value["generateName"]):
            result["name"] = value["generateName"] + "<random>"
        if "causes" in result:
            result["causes"] = [
                cause for at, cause in enumerate(result["causes"]) if cause not in result["causes"][:at]
            ]
        return result

    def _normalise_text(self, value: str, key: str) -> Any:
        if key == "name" and value in self._saved.values():
            return "<generated>"
        if key == "uid":
            return self._named("uid", value) if _UUID.fullmatch(value) else value
        if key == "resourceVersion":
            return self._named("version", value) if value.isdigit() else value
        if key in _SERVER_TIMES:
            return "<time>"
        if key in ("clusterIP", "clusterIPs") and re.fullmatch(r"10\.\d+\.\d+\.\d+", value):
            return self._named("address", value)
        if key == "message":
            value = _UUID.sub(lambda match: self._named("uid", match[0]), value)
            value = _TIME.sub("<time>", value)
            value = re.sub(r'"10\.\d+\.\d+\.\d+"', lambda match: self._named("address", match[0].strip('"')), value)
            value = re.sub(r"(record|precondition|meta:|version:|current:) ?\(?(\d+)\)?", r"\1 <number>", value)
        return value


def _at_once(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """The steps in order; those that only read, one after the other, together, as some of them wait
    for seconds."""
    held: list[Step] = []
    for step in steps:
        if step.method != "GET":
            if held:
                yield held
            held = []
            yield [step]
            continue
        held.append(step)
        if step.save:
            yield held
            held = []
    if held:
        yield held


def _read(response: http.client.HTTPResponse, step: Step) -> bytes:
    """The whole body; of a watch that shows first what is there, the lines up to the one that says
    so. On a busy machine the real server takes longer for that line than any watch here lasts."""
    if response.status != 200 or not _is_watch(step) or step.query.get("sendInitialEvents", "").lower() != "true":
        return response.read()
    if "allowWatchBookmarks" not in step.query:
        return response.read()
    lines: list[bytes] = []
    while not lines or (lines[-1] and b"k8s.io/initial-events-end" not in lines[-1]):
        lines.append(response.readline())
    return b"".join(lines)


def _is_watch(step: Step) -> bool:
    return step.query.get("watch", "0").lower() not in ("0", "false")


def _blank(result: JSON, paths: tuple[str, ...], fields: tuple[str, ...]) -> None:
    for path in paths:
        held: Any = result
        for part in path.split("."):
            held = held.get(part) if isinstance(held, dict) else None
        if isinstance(held, dict):
            for field in fields:
                if field in held:
                    held[field] = "<any>"


def _look_up(answer: Any, path: str) -> Any:
    value = answer
    for part in path.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Where two normalised answers differ, one line each."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            here = f"{path}.{key}" if path else key
            if key not in one:
                yield f"{here}: only the real server has {other[key]!r}"
            elif key not in other:
                yield f"{here}: only the embedded server has {one[key]!r}"
            else:
                yield from differences(one[key], other[key], here)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, f"{path}[{at}]")
    elif one != other:
        yield f"{path}:\n    embedded {one!r}\n    real     {other!r}"
