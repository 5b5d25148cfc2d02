"""The table of annotations is the code's, and what the README shows works. `python
tests/test_aws_readme.py` writes the table again."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from aws_provider.annotations import Annotations
from aws_provider.config import Config

from cloudprovider import CloudConfig

ROOT = Path(__file__).parents[1]
README, ANNOTATIONS = ROOT / "README.md", ROOT / "ANNOTATIONS.md"
BEGIN, END = "<!-- annotations: written by tests/test_aws_readme.py -->\n", "<!-- end -->"


def written() -> str:
    """The page of annotations with today's table."""
    head, _, rest = ANNOTATIONS.read_text().partition(BEGIN)
    return f"{head}{BEGIN}{Annotations.markdown_table()}{END}{rest.partition(END)[2]}"


def test_the_table_of_annotations_is_current() -> None:
    assert ANNOTATIONS.read_text() == written(), f"run: python {Path(__file__).name}"


def test_the_configurations_that_are_shown_can_be_read() -> None:
    shown = README.read_text().partition("```yaml\n")[2].partition("```")[0]
    settings = Config.load(CloudConfig(path="", data=shown.encode()), environ={})
    assert settings == Config(cluster="blue", region="eu-west-1", vpc="vpc-0123456789abcdef0")
    values = yaml.safe_load((ROOT / "helm-values.yaml").read_text())
    content = CloudConfig(path="", data=values["cloudConfig"]["content"].encode())
    assert Config.load(content, environ={}).cluster == values["clusterName"]


def test_the_helm_values_are_the_charts() -> None:
    schema = json.loads((ROOT.parent / "deploy" / "chart" / "values.schema.json").read_text())
    values = yaml.safe_load((ROOT / "helm-values.yaml").read_text())
    assert values.keys() <= schema["properties"].keys()


if __name__ == "__main__":
    ANNOTATIONS.write_text(written())
