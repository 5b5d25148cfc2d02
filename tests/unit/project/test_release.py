"""The workflows of .github: their commands exist, their paths are real, and what they build can be
built here, without a network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import release
from tests.support.console import syntax
from tests.support.locks import PROVIDERS, image_requirements, pins

ROOT = Path(__file__).parents[3]
WORKFLOWS = {path.name: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")}
JOBS = [(f"{name}:{job}", content) for name, flow in WORKFLOWS.items() for job, content in flow["jobs"].items()]
STEPS = [(job, step) for job, content in JOBS for step in content["steps"]]
EXPRESSION = re.compile(r"\$\{\{.*?\}\}")
PROJECTS = [ROOT / "pyproject.toml", *sorted((ROOT / "examples").glob("*/pyproject.toml"))]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
ALLOWED = release.compatible(VERSION)


def scripts() -> Iterator[tuple[str, str]]:
    """Each shell script of the workflows, by its job."""
    for job, step in STEPS:
        if "run" in step:
            yield job, EXPRESSION.sub("X", step["run"])


def expressions() -> Iterator[str]:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        yield from EXPRESSION.findall(path.read_text())


def test_there_is_something_to_look_at() -> None:
    assert {"ci.yml", "release.yml"} <= WORKFLOWS.keys()
    assert len(list(scripts())) > 12


def test_scripts_can_be_read_and_name_nothing_that_is_not_there() -> None:
    assert syntax("\n".join(script for _, script in scripts())) == ""
    makefile = (ROOT / "Makefile").read_text()
    for job, script in scripts():
        for path in re.findall(r"(?:^|[ =\"])((?:\.ci|examples|tests|docs)/[\w./-]+|requirements[\w-]*\.txt)", script):
            assert (ROOT / path).exists(), f"{job}: {path}"
        for program in re.findall(r"(?:^| )(\.ci/[\w-]+)", script):
            assert os.access(ROOT / program, os.X_OK), f"{job}: {program} cannot be run"
        for module in re.findall(r"-m (tests\.[\w.]+)", script):
            assert find_spec(module), f"{job}: {module}"
        for target in re.findall(r"^make ([a-z]+)", script, re.M):
            assert re.search(rf"^{target}:", makefile, re.M), f"{job}: make {target}"


def test_files_of_the_steps_are_there() -> None:
    for job, step in STEPS:
        given: Mapping[str, Any] = step.get("with") or {}
        if "file" in given:
            assert (ROOT / given["file"]).is_file(), f"{job}: {given['file']}"
        for pattern in re.findall(r"hashFiles\((.*?)\)", str(given)):
            for one in re.findall(r"'([^']+)'", pattern):
                assert list(ROOT.glob(one)), f"{job}: {one}"


def test_what_a_step_uses_has_a_version() -> None:
    used = [step["uses"] for _, step in STEPS if "uses" in step]
    assert [one for one in used if not re.fullmatch(r"[\w-]+/[\w./-]+@(v\d+|release/v\d+|[0-9a-f]{40})", one)] == []


def test_jobs_wait_for_jobs_that_are_there_and_take_what_these_leave() -> None:
    for name, flow in WORKFLOWS.items():
        left = {step["with"]["name"] for job in flow["jobs"].values() for step in job["steps"]
                if step.get("uses", "").startswith("actions/upload-artifact@")}  # fmt: skip
        for job in flow["jobs"].values():
            needs = job.get("needs", [])
            assert set([needs] if isinstance(needs, str) else needs) <= flow["jobs"].keys(), name
            for step in job["steps"]:
                if step.get("uses", "").startswith("actions/download-artifact@"):
                    assert step["with"].get("name") in {*left, None}


def test_expressions_name_ids_and_values_that_are_there() -> None:
    release_flow = WORKFLOWS["release.yml"]
    ids = {step["id"] for job in release_flow["jobs"].values() for step in job["steps"] if "id" in step}
    matrix = {key for _, job in JOBS for key in job.get("strategy", {}).get("matrix", {})}
    for one in expressions():
        assert set(re.findall(r"steps\.(\w+)\.", one)) <= ids, one
        assert set(re.findall(r"matrix\.(\w+)", one)) <= matrix, one


def test_rights_are_given_by_job_and_nothing_is_published_but_tags() -> None:
    for name, flow in WORKFLOWS.items():
        assert flow["permissions"] == {"contents": "read"}, name
    for job, step in STEPS:
        publishes = re.search(r"pypi-publish|helm push|gh release", str(step))
        condition = f"{dict(JOBS)[job].get('if', '')} {step.get('if', '')}"
        if publishes:
            assert "github.ref_type == 'tag'" in condition, f"{job}: {step}"
    (build,) = (step for _, step in STEPS if step.get("uses", "").startswith("docker/build-push-action@"))
    assert "github.ref_type == 'tag'" in build["with"]["push"]


def test_no_address_is_written_down() -> None:
    """Where things are published is a setting of the repository."""
    for name in WORKFLOWS:
        text = (ROOT / ".github" / "workflows" / name).read_text()
        assert re.findall(r"(?:https?|oci)://(?!\$)\S+", text) == [], name


def test_images_are_of_providers_with_everything_that_they_import() -> None:
    providers = WORKFLOWS["release.yml"]["jobs"]["image"]["strategy"]["matrix"]["provider"]
    for provider in providers:
        folder = ROOT / "examples" / provider
        assert (folder / "pyproject.toml").is_file()
        assert (provider in PROVIDERS) == (folder / "requirements.txt").is_file()
    assert set(PROVIDERS) <= set(providers)


def test_a_providers_lock_file_has_all_that_it_needs_with_hashes() -> None:
    assert re.findall(r"^([\w-]+)==", image_requirements("aws"), re.M) == [
        "boto3", "botocore", "jmespath", "s3transfer"
    ]  # fmt: skip
    locked = pins(ROOT / "requirements-dev.txt")
    assert all("--hash=sha256:" in locked[name] for name in ("boto3", "apache-libcloud"))


def test_every_file_has_the_version_of_the_release() -> None:
    assert list(release.problems(ROOT, VERSION)) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "what"),
    [
        ("pyproject.toml", f'version = "{VERSION}"', 'version = "9.9.9"', "pyproject.toml: the version is 9.9.9"),
        ("examples/aws/pyproject.toml", f'{ALLOWED}"', '>=0.1"', "examples/aws/pyproject.toml: it needs"),
        ("examples/deploy/chart/Chart.yaml", "appVersion: ", "appVersion: 9", "appVersion is 9"),
        ("examples/aws/helm-values.yaml", f"tag: {VERSION}", "tag: 9.9.9", "the image's tag is 9.9.9"),
        ("docs/guides/packaging.md", f'{ALLOWED}"', '>=0.1,<1"', "docs/guides/packaging.md: it shows"),
        ("CHANGELOG.md", f"## {VERSION}", "## 9.9.9", "nothing under a heading"),
    ],
)
def test_another_version_in_a_file_is_told(tmp_path: Path, file: str, old: str, new: str, what: str) -> None:
    for path in (*PROJECTS, ROOT / "CHANGELOG.md", ROOT / "docs" / "guides" / "packaging.md",
                 ROOT / "examples" / "deploy" / "chart" / "Chart.yaml",
                 *(ROOT / "examples").glob("*/helm-values.yaml")):  # fmt: skip
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    assert list(release.problems(tmp_path, VERSION)) == []
    text = (tmp_path / file).read_text()
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new, 1))
    (problem,) = release.problems(tmp_path, VERSION)
    assert what in problem


def test_versions_and_notes() -> None:
    assert list(release.problems(ROOT, "1.2")) == ["'1.2' is no version such as 1.2.3 or 1.2.3rc1"]
    assert [release.compatible(one) for one in ("0.1.0", "0.12.3", "1.4.2")] == [
        ">=0.1,<0.2",
        ">=0.12,<0.13",
        ">=1.4,<2",
    ]
    text = "# Changelog\n\n## 0.2.0 - 2027-01-01\n\n- new\n\n### Fixed\n\n- old\n\n## 0.1.0\n\nfirst\n"
    assert release.notes(text, "0.2.0") == "- new\n\n### Fixed\n\n- old"
    assert release.notes(text, "0.1.0") == "first"
    assert release.notes(text, "0.2") == ""


def test_a_distribution_is_built_as_the_workflow_does(tmp_path: Path) -> None:
    """With the build tools that are here already; `make dist` builds them all."""
    environ = {**os.environ, "PYTHON": sys.executable, "PIP_NO_INDEX": "1"}
    command = [str(ROOT / ".ci" / "distributions"), str(tmp_path), "examples/samplecloud"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    stem = f"samplecloud-{VERSION}"
    assert {path.name for path in tmp_path.iterdir()} == {f"{stem}-py3-none-any.whl", f"{stem}.tar.gz"}
    with zipfile.ZipFile(tmp_path / f"{stem}-py3-none-any.whl") as wheel:
        assert "samplecloud_provider/py.typed" in wheel.namelist()
        assert "[cloudprovider.providers]" in wheel.read(f"{stem}.dist-info/entry_points.txt").decode()
    with tarfile.open(tmp_path / f"{stem}.tar.gz") as archive:
        assert f"{stem}/pyproject.toml" in archive.getnames()


def test_the_wheel_and_a_wheel_of_the_source_archive_hold_the_chart(tmp_path: Path) -> None:
    """`python -m cloudprovider chart` writes it from there."""
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    stem = f"kubernetes_cloud_provider-{VERSION}"
    with tarfile.open(tmp_path / f"{stem}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    again = [*build[:-1], str(tmp_path / "again"), "-t", "wheel"]
    subprocess.run(again, cwd=tmp_path / stem, check=True, capture_output=True)
    chart = ROOT / "examples" / "deploy" / "chart"
    wanted = {path.relative_to(chart).as_posix(): path.read_bytes() for path in chart.rglob("*") if path.is_file()}
    for folder in (tmp_path, tmp_path / "again"):
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl") as wheel:
            place = "cloudprovider/commands/helmchart/"
            held = {name.removeprefix(place): wheel.read(name) for name in wheel.namelist() if name.startswith(place)}
        assert held == wanted


def test_every_project_is_built() -> None:
    """The script's own list, asked of the shell that it runs in."""
    script = (ROOT / ".ci" / "distributions").read_text()
    (default,) = re.findall(r"set -- (.+)", script)
    asked = subprocess.run(["bash", "-c", f"echo {default}"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {ROOT / folder / "pyproject.toml" for folder in asked.stdout.split()} == set(PROJECTS)
