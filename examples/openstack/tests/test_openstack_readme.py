"""The README's table of settings is the code's, and what is shown can be read. `python
tests/test_openstack_readme.py` writes the table again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from openstack_provider.config import Config

from cloudprovider import CloudConfig

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
BEGIN, END = "<!-- settings: written by tests/test_openstack_readme.py -->\n", "<!-- end -->"
SECTIONS = {"networking": "Networking", "loadbalancer": "LoadBalancer", "route": "Route", "metadata": "Metadata"}
LOGIN = ("tls_insecure", "use_clouds", "clouds_file", "cloud")  # told in words


def table() -> str:
    """What has a meaning or a default to tell, by section and name as in cloud.conf."""
    rows = ["| key | default | meaning |", "|---|---|---|"]
    for row in Config.markdown_table().splitlines()[2:]:
        name, _, default, meaning = (cell.strip() for cell in row.replace("\\|", "/").split("|")[1:5])
        section, _, key = name.strip("`").rpartition(".")
        default = "" if default in ("``", "`()`", "`{}`") else default
        if (default or meaning) and key not in LOGIN and "without effect" not in meaning:
            shown = f"[{SECTIONS.get(section, 'Global')}] {key.replace('_', '-')}"
            rows.append(f"| `{shown}` | {default} | {meaning} |")
    return "\n".join(rows) + "\n"


def written() -> str:
    """The README with today's table."""
    head, _, rest = README.read_text().partition(BEGIN)
    return f"{head}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


def test_the_table_of_settings_is_current() -> None:
    assert README.read_text() == written(), f"run: python {Path(__file__).name}"


def test_the_configuration_that_is_shown_can_be_read() -> None:
    [shown] = re.findall(r"```ini\n(.*?)```", README.read_text(), re.DOTALL)
    config = Config.load(CloudConfig("cloud.conf", shown.encode()))
    assert (config.region, bool(config.route.router_id)) == ("RegionOne", True)


def test_the_helm_values_are_the_charts_and_can_be_used() -> None:
    schema = json.loads((ROOT.parent / "deploy" / "chart" / "values.schema.json").read_text())
    values = yaml.safe_load((ROOT / "helm-values.yaml").read_text())
    assert values.keys() <= schema["properties"].keys()
    config = Config.load(CloudConfig("", values["cloudConfig"]["content"].encode()))
    [mount] = values["extraVolumeMounts"]
    assert mount["name"] == values["extraVolumes"][0]["name"]
    assert config.clouds_file == f"{mount['mountPath']}/clouds.yaml"


if __name__ == "__main__":
    README.write_text(written())
