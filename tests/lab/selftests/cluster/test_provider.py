"""Which provider a distribution has."""

from pathlib import Path

import pytest

from tests.lab.cluster.provider import OURS, BadProvider, Provider, read_provider


def distribution(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_ours_is_the_local_cloud() -> None:
    assert read_provider(OURS) == Provider(OURS, "localcloud")


def test_a_vendors_name_is_its_entry_points(tmp_path: Path) -> None:
    folder = distribution(tmp_path, '[project.entry-points."cloudprovider.providers"]\nacme = "acme:new"\n')
    assert read_provider(folder).name == "acme"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "found: none"),
        ('[project.entry-points."cloudprovider.providers"]\na = "a:new"\nb = "b:new"\n', "found: a, b"),
        ("no = [", "pyproject.toml: "),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadProvider, match=says):
        read_provider(distribution(tmp_path, text))


def test_a_folder_without_a_project_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadProvider, match="PROVIDER must be the folder of your package"):
        read_provider(tmp_path)
