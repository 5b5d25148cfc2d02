"""The commands of a `console` block, and what is wrong with them. Nothing is run but our own
parsers.

A command begins with "$ " and goes on while a line ends with a backslash, or until the end of a
here-document; all other lines are output. Programs that are not checked here are named in `OTHERS`,
so that a misspelt one is found.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cloudprovider.commands.cli import parser as cloudprovider_commands
from controllers.catalog import CATALOG
from controllers.cli import rbac
from controllers.flags.parse import parse
from controllers.teardown.options import TeardownOptions

ROOT = Path(__file__).parents[2]
CHART = ROOT / "examples" / "deploy" / "chart"
TUTORIAL = ROOT / "examples" / "tutorial"
"""What its reader has in a folder of their own."""
_OPERATORS = {"|", "||", "&&", ";", "&"}
_HEREDOC = re.compile(r"<<-?'?(\w+)'?")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")

OTHERS = {
    "apt-get", "incus", "openssl", "cat", "cd", "curl", "export", "git", "mkdir", "cp", "docker", "source", ".",
    "jq", "moto_server", "openstack", "printf",
}  # fmt: skip
"""Programs of which only the files of this repository that they are given are checked."""
CLOUDS = {"moto[server]", "keystone", "openstack-placement", "glance", "neutron", "nova", "waitress"}
"""What pages install beside our own distributions: servers to try a provider on."""


_PREFIXES = {"env", "sudo"}
"""What follows them is the command; `env` may have assignments before it."""


def commands(text: str) -> list[str]:
    """The commands of a block, each as one string without the prompt. Pure."""
    found: list[str] = []
    until = ""
    for line in text.splitlines():
        if until:
            found[-1] += f"\n{line}"
            until = "" if line == until else until
        elif found and found[-1].endswith("\\"):
            found[-1] += f"\n{line}"
        elif line.startswith("$ "):
            found.append(line[2:])
        else:
            continue
        if not until and (heredoc := _HEREDOC.search(line)):
            until = heredoc[1]
    return found


def syntax(script: str) -> str:
    """What bash says about it without running it; "" when it can be read."""
    return subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False).stderr


def problems(command: str) -> list[str]:
    """What is wrong with one command: unknown programs, targets, flags, modules; files that are not
    there."""
    line = re.sub(_HEREDOC.pattern + r".*", "", command, flags=re.S) if _HEREDOC.search(command) else command
    found = [problem for inner in _SUBSTITUTION.findall(line) for problem in problems(inner)]
    lexer = shlex.shlex(line.replace("\\\n", " "), posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word in _OPERATORS:
            if words:
                found += _of_one(words)
            words = []
        else:
            words.append(word)
    return found


def _of_one(words: Sequence[str]) -> list[str]:
    for sign in (">", ">>", "<"):  # what it reads or writes is not its business
        if sign in words:
            words = [*words[: words.index(sign)], *words[words.index(sign) + 2 :]]
    start = next((index for index, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    if start == len(words):
        return []
    program, arguments = words[start].rpartition("/")[2], words[start + 1 :]
    if program in _PREFIXES:
        return _of_one(arguments)
    found = [f"{word}: no such file" for word in words if _ours(word) and not (ROOT / word).exists()]
    if program in OTHERS or program in _example_programs():
        return found
    check = _CHECKS.get(program)
    return [*found, *(check(arguments) if check else [f"unknown program {program}"])]


def _ours(word: str) -> bool:
    return re.match(r"(?:\./)?(?:cloudprovider|controllers|docs|examples|tests)/[\w./-]+$", word) is not None


def _examples() -> list[Any]:
    return [tomllib.loads(path.read_text())["project"] for path in (ROOT / "examples").glob("*/pyproject.toml")]


@functools.cache
def _example_programs() -> set[str]:
    return {program for project in _examples() for program in project.get("scripts", {})}


def _make(arguments: Sequence[str]) -> list[str]:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z0-9]+):", makefile, re.M))
    found = []
    for word in arguments:
        name, is_variable, value = word.partition("=")
        if not is_variable:
            found += [f"make has no target {word}"] if word not in targets and word != "..." else []
            continue
        if f"$({name})" not in makefile:
            found.append(f"make has no variable {name}")
        paths = [part for part in value.split() if "/" in part and name == "PYTEST_ARGS"]
        found += [f"{path}: no such file" for path in paths if not (ROOT / path).exists()]
    return found


def _manager(arguments: Sequence[str]) -> list[str]:
    flags = (TeardownOptions,) if arguments[:1] == ["teardown"] else ()
    given = [word for word in arguments[len(flags) :] if word != "..."]
    return list(parse(given, CATALOG, flags=flags).problems)


def _python(arguments: Sequence[str]) -> list[str]:
    match [word for word in arguments if word != "-I"]:
        case ["-c", code, *_]:
            compile(code, "-c", "exec")
            return []
        case ["-"]:  # a here-document
            return []
        case ["-m", "controllers.cli.rbac", *rest]:
            return _quietly(lambda: rbac.main(rest))
        case ["-m", "controllers.app", *rest]:
            return _manager(rest)
        case ["-m", "cloudprovider", *rest]:
            return _quietly(lambda: cloudprovider_commands().parse_args(rest) is None)
        case ["-m", module, *_]:
            return [] if importlib.util.find_spec(module) else [f"no module {module}"]
        case [script, *_]:
            there = any((folder / script).is_file() for folder in (ROOT, TUTORIAL))
            return [] if there else [f"{script}: no such file"]
    return ["python with nothing to run"]


def _quietly(run: Callable[[], int]) -> list[str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code = run()
        except SystemExit as ended:  # argparse refuses
            code = 1 if ended.code else 0
    return [out.getvalue()] if code else []


def _pip(arguments: Sequence[str]) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = []
    for word in arguments[1:]:
        name, _, extras = word.partition("[")
        if name == project["name"]:
            wanted = [extra.strip() for extra in extras.rstrip("]").split(",") if extra]
            found += [f"no extra {extra}" for extra in wanted if extra not in project["optional-dependencies"]]
        elif not word.startswith(("-", ".")) and word not in CLOUDS | {one["name"] for one in _examples()}:
            found.append(f"pip installs {word}, which is not ours")
    return found if arguments[:1] in (["install"], ["wheel"]) else [f"pip {' '.join(arguments[:1])}"]


# 1: a value follows, after a "=" or as the next word
_KUBECTL_FLAGS = {
    "-n": 1, "--namespace": 1, "-f": 1, "-k": 1, "-o": 1, "-A": 0, "--all-namespaces": 0, "--field-selector": 1,
    "--clusterrole": 1, "--serviceaccount": 1, "--replicas": 1, "-l": 1, "-w": 0, "--watch": 0, "--for": 1,
    "--timeout": 1, "--name": 1, "--port": 1, "--target-port": 1, "--type": 1, "--kubeconfig": 1, "--output": 1,
    "--subresource": 1, "--patch": 1, "--validate": 1, "--filename": 1, "--non-resource-url": 1, "--verb": 1,
    "--tail": 1, "--previous": 0, "-L": 1, "--show-managed-fields": 0, "--raw": 1, "--from-file": 1, "--image": 1,
}  # fmt: skip
_KUBECTL_VERBS = {
    "get", "apply", "create", "delete", "describe", "exec", "logs", "rollout", "scale", "taint", "label", "annotate",
    "wait", "patch", "port-forward", "expose",
}  # fmt: skip
_HELM_FLAGS = {"--namespace": 1, "-n": 1, "--set": 1, "--set-file": 1, "--values": 1, "-f": 1}
_HELM_VERBS = {"install", "upgrade", "template", "rollback", "uninstall"}


def _kubectl(arguments: Sequence[str]) -> list[str]:
    rest, _, found = _flags(_until_dashes(arguments), _KUBECTL_FLAGS)
    inside = arguments[len(_until_dashes(arguments)) + 1 :]
    if inside:
        found += [] if inside[0] in _image_programs() else [f"the image has no program {inside[0]}"]
        found += _of_one(inside)
    return [*found, *([] if rest[:1] and rest[0] in _KUBECTL_VERBS else [f"kubectl {' '.join(rest[:1])}"])]


def _image_programs() -> set[str]:
    """The base image's Python, which the Dockerfile asks for, and the one that the image starts."""
    dockerfile = (ROOT / "examples" / "deploy" / "image" / "Dockerfile").read_text()
    return {"python3", *re.findall(r'^ENTRYPOINT \["([^"]+)"', dockerfile, re.M)}


def _helm(arguments: Sequence[str]) -> list[str]:
    rest, given, found = _flags(arguments, _HELM_FLAGS)
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for flag in ("--set", "--set-file"):
        for assignment in given.get(flag, ()):
            at: object = values
            for part in assignment.partition("=")[0].split("."):
                at = at.get(part, KeyError) if isinstance(at, Mapping) else KeyError
            found += [f"the chart has no value {assignment.partition('=')[0]}"] if at is KeyError else []
    return [*found, *([] if rest[:1] and rest[0] in _HELM_VERBS else [f"helm {' '.join(rest[:1])}"])]


def _until_dashes(arguments: Sequence[str]) -> Sequence[str]:
    return arguments[: list(arguments).index("--")] if "--" in arguments else arguments


def _flags(arguments: Sequence[str], known: Mapping[str, int]) -> tuple[list[str], dict[str, list[str]], list[str]]:
    """What is no flag, the values by flag, and what is unknown."""
    rest: list[str] = []
    given: dict[str, list[str]] = {}
    found: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "-" or not word.startswith("-"):
            rest.append(word)
            continue
        name, joined, value = word.partition("=")
        if name not in known:
            found.append(f"unknown flag {name}")
        elif known[name]:
            given.setdefault(name, []).append(value if joined else next(words, ""))
    return rest, given, found


_CHECKS: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "make": _make,
    "cloud-controller-manager": _manager,
    "python": _python,
    "python3": _python,
    "pip": _pip,
    "pytest": lambda _: [],
    "kubectl": _kubectl,
    "helm": _helm,
}
