"""The README's table and DRIVERS.md are the code's, and the configurations that are shown can be
read. `python tests/test_libcloud_readme.py` writes both again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import recorded
import yaml
from libcloud_provider.arguments import balancer_drivers, compute_drivers
from libcloud_provider.balancers import BALANCERS
from libcloud_provider.capabilities import PROVED, PROVED_BALANCERS, RUN_AGAINST, page
from libcloud_provider.config import Config
from libcloud_provider.profiles import PROFILES
from libcloud_provider.provider import Libcloud

from cloudprovider import CloudConfig

ROOT = Path(__file__).parents[1]
README, DRIVERS = ROOT / "README.md", ROOT / "DRIVERS.md"
BEGIN, END = "<!-- settings: written by tests/test_libcloud_readme.py -->\n", "<!-- end -->"
SHOWN = re.findall(r"```yaml\n(.*?)```", README.read_text() + (ROOT / "TRY.md").read_text(), re.DOTALL)


def written() -> str:
    """The README with today's table."""
    head, _, rest = README.read_text().partition(BEGIN)
    rows = [row for row in Config.markdown_table().splitlines(keepends=True) if "`load_balancer." not in row]
    return f"{head}{BEGIN}{''.join(rows)}{END}{rest.partition(END)[2]}"


def test_the_table_of_settings_is_current() -> None:
    assert README.read_text() == written(), f"run: python {Path(__file__).name}"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")  # of libcloud's drivers
def test_the_page_of_drivers_is_current() -> None:
    assert DRIVERS.read_text() == page(), f"run: python {Path(__file__).name}"


def test_the_tables_name_drivers_that_there_are() -> None:
    assert PROFILES.keys() <= compute_drivers().keys()
    assert BALANCERS.keys() == balancer_drivers().keys()


def test_what_is_said_to_be_proved_is_tested() -> None:
    by_answers = {driver for driver, how in PROVED.items() if "recorded answers" in how}
    assert by_answers == recorded.DRIVERS.keys()
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for driver in {driver for driver, how in PROVED.items() if "conformance" in how}:
        assert f"conformance_{driver}.py" in " ".join(map(str, Path(__file__).parent.iterdir())) or driver == "ec2"
    assert {f"driver: {driver}\n" for driver in RUN_AGAINST} <= set(re.findall(r"driver: \w+\n", tests))
    assert ("services" in PROVED["openstack"]) is (Path(__file__).parent / "test_libcloud_openstack_server.py").exists()
    for driver in PROVED_BALANCERS:
        assert f"load_balancer: {{{{driver: {driver}}}}}" in tests or f'BALANCERS["{driver}"]' in tests


@pytest.mark.parametrize("shown", SHOWN)
def test_the_configurations_that_are_shown_can_be_used(shown: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    config = yaml.safe_load(re.sub(r"/etc/cloud/\w+|(?<=secret: )secret\b", str(secret), shown))
    provider = Libcloud(Config.load(CloudConfig(path="", data=yaml.safe_dump(config).encode()), environ={}))
    assert (provider.load_balancer() is not None) is ("load_balancer" in config)
    assert len(SHOWN) == 4


def test_the_image_gets_the_libcloud_that_is_tested() -> None:
    _, _, pin = (ROOT / "requirements.txt").read_text().partition("\n")
    assert pin.startswith("apache-libcloud==")
    assert pin in (ROOT.parents[1] / "requirements-dev.txt").read_text()


def test_the_helm_values_are_the_charts_and_can_be_used(tmp_path: Path) -> None:
    schema = json.loads((ROOT.parent / "deploy" / "chart" / "values.schema.json").read_text())
    values = yaml.safe_load((ROOT / "helm-values.yaml").read_text())
    assert values.keys() <= schema["properties"].keys()
    [mount] = values["extraVolumeMounts"]
    assert mount["name"] == values["extraVolumes"][0]["name"]
    content = values["cloudConfig"]["content"]
    assert f"{mount['mountPath']}/token" in content
    (tmp_path / "token").write_text("s3cret")
    shown = content.replace(mount["mountPath"], str(tmp_path))
    assert Config.load(CloudConfig(path="", data=shown.encode()), environ={}).driver == "digitalocean"


if __name__ == "__main__":
    README.write_text(written())
    DRIVERS.write_text(page())
