"""What finds and checks the code blocks of pages finds mistakes: marks, programs, flags, files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.blocks import blocks, units
from tests.support.console import commands, problems, syntax

PAGE = """# Page
<!-- block: after some.module -->
```python
one = 1
```
1. In a list:

   <!-- block: continued -->
   ```python
   two = one + 1
   ```
<!-- block: from examples/main.py -->
```python
import sys
```
<!-- block: not run: it needs a cluster -->
```python
three = 3
```
```console
$ make test
```
"""


def write(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text)
    return page


def test_blocks_know_their_line_language_and_mark(tmp_path: Path) -> None:
    found = blocks(write(tmp_path, PAGE))
    assert [(one.line, one.language, one.text) for one in found] == [
        (4, "python", "one = 1\n"),
        (10, "python", "two = one + 1\n"),
        (14, "python", "import sys\n"),
        (18, "python", "three = 3\n"),
        (21, "console", "$ make test\n"),
    ]
    marks = [(one.after, one.continued, one.source, one.not_run) for one in found]
    assert marks[:2] == [("some.module", False, "", ""), ("", True, "", "")]
    assert marks[2:] == [
        ("", False, "examples/main.py", ""),
        ("", False, "", "it needs a cluster"),
        ("", False, "", ""),
    ]


def test_a_unit_has_the_lines_of_the_page(tmp_path: Path) -> None:
    first, second = units(write(tmp_path, PAGE))
    assert first.source.splitlines() == ["from some.module import *", "", "", "one = 1", *[""] * 5, "two = one + 1"]
    assert (second.not_run, second.source.splitlines()[17]) == ("it needs a cluster", "three = 3")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<!-- block: contineud -->\n```python\n```\n", "unknown mark 'contineud'"),
        ("<!-- block: continued -->\ntext\n```python\n```\n", "1 mark.s. without a block"),
        ("<!-- block: continued -->\n```python\n```\n", "no Python block stands before it"),
    ],
)
def test_a_wrong_mark_is_an_error(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        units(write(tmp_path, text))


def test_commands_are_joined_and_output_is_left_out() -> None:
    text = "$ make test \\\n    PYTEST_ARGS=-x\noutput\n$ cat > a <<END\n$ text\nEND\nmore\n$ make\n"
    assert commands(text) == ["make test \\\n    PYTEST_ARGS=-x", "cat > a <<END\n$ text\nEND", "make"]


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("make tset", "no target tset"),
        ("make test PYTEST_ARG=-x", "no variable PYTEST_ARG"),
        ('make test PYTEST_ARGS="-k x tests/gone"', "tests/gone: no such file"),
        ("cloud-controller-manager --cloud-provider=a --cloud-confg=b", "--cloud-confg"),
        ("FOO=1 cloud-controler-manager", "unknown program cloud-controler-manager"),
        ("python -m controllers.app.rback", "no module"),
        ("python -m controllers.app.rbac --controler=x | kubectl apply -f -", "--controler"),
        ("python -m cloudprovider chek acme", "chek"),
        ("python -m cloudprovider check acme --of-line", "--of-line"),
        ("python examples/gone.py", "examples/gone.py: no such file"),
        ("kubectl gte pods", "kubectl gte"),
        ("kubectl get pods --namepsace x", "unknown flag --namepsace"),
        ("kubectl exec pod -- pyhton -c 1", "unknown program pyhton"),
        ("curl $(kubectl gte pods)", "kubectl gte"),
        ("helm install a examples/deploy/chart --set cloudProvder=x", "no value cloudProvder"),
        ("pip install kubernetes-cloud-provider[test]", "no extra test"),
    ],
)
def test_a_mistake_in_a_command_is_found(command: str, problem: str) -> None:
    assert problem in " ".join(problems(command))


@pytest.mark.parametrize(
    "command",
    [
        "make test PYTEST_ARGS='-k taint'  # a comment",
        "cloud-controller-manager --cloud-provider=acme --kubeconfig=...",
        "python -m controllers.app.rbac --controllers='*,-node-route-controller' > base/rbac.yaml",
        "kubectl -n kube-system exec POD -- python -c 'import os'",
        "helm install a examples/deploy/chart --set image.repository=b",
        "pip install 'kubernetes-cloud-provider[testing]'",
    ],
)
def test_a_good_command_passes(command: str) -> None:
    assert problems(command) == []


def test_a_quotation_mark_that_is_missing_is_found() -> None:
    assert "unexpected EOF" in syntax("echo 'a\nmake")
