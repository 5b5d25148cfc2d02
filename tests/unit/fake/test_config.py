"""Configuration files: what is read, what is made of it, and that all of what is wrong is told at
once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cloudprovider import CloudConfig
from cloudprovider.errors import InvalidConfig
from cloudprovider.testing.fake import FakeCloud, FakeConfig, Instance
from cloudprovider.testing.fake.config import CAPABILITIES

EXAMPLE = Path(__file__).parents[3] / "examples" / "fake-cloud.yaml"


def read_config(data: bytes, source: str = "") -> FakeConfig:
    return FakeConfig.load(CloudConfig(source, data), environ={})


def problems_of(raw: Any) -> tuple[str, ...]:
    """The problems, without the place in the file."""
    with pytest.raises(InvalidConfig) as caught:
        read_config(json.dumps(raw).encode(), "cloud.json")
    return tuple(line.partition(": ")[2] for line in caught.value.problems)


def machines(**fields: Any) -> list[Instance]:
    return list(FakeConfig.model_validate(fields).machines())


class TestFile:
    def test_yaml_and_json_are_read_alike(self) -> None:
        raw = {"max_batch": 3, "instances": [{"name": "a"}], "latency": {"*": 0.5}}
        yaml = b"max_batch: 3\ninstances: [{name: a}]\nlatency: {'*': 500ms}\n"
        assert read_config(json.dumps(raw).encode()) == read_config(yaml) == FakeConfig.model_validate(raw)

    @pytest.mark.parametrize("data", [b"", b"# nothing\n", b"{}", b"\xef\xbb\xbf{}"])
    def test_an_empty_file_gives_the_defaults(self, data: bytes) -> None:
        assert read_config(data) == FakeConfig()

    @pytest.mark.parametrize(
        ("data", "problem"),
        [
            (b"a: [", r"cloud.yaml, line 1: is not YAML"),
            (b"zone: a\nlog: some", r"cloud.yaml, line 2: log: must be 'changes' or 'all'"),
        ],
    )
    def test_what_is_wrong_is_told_by_its_place_as_of_every_provider(self, data: bytes, problem: str) -> None:
        with pytest.raises(InvalidConfig, match=problem):
            read_config(data, "cloud.yaml")

    def test_unknown_values_are_not_quoted(self) -> None:
        """Somebody may point --cloud-config at another cloud's file, with its password."""
        for data in (b"password: hunter2", b"password: hunter2\n  x: [", b"log: hunter2", b"instances: hunter2"):
            with pytest.raises(InvalidConfig) as caught:
                read_config(data)
            assert "hunter2" not in str(caught.value)


class TestExample:
    def test_it_is_complete(self) -> None:
        """Every field of every section stands in the example."""
        config = read_config(EXAMPLE.read_bytes())
        assert config.model_fields_set == set(FakeConfig.model_fields) - {"server", "server_key"}
        for section in (config.load_balancers, config.routes, config.on_demand):
            assert section is not None
            assert set(type(section).model_fields) == section.model_fields_set
        for entries in (
            config.instances, config.generate, config.volumes, config.clusters, config.routes.existing
        ):  # fmt: skip
            shown = {name for entry in entries for name in entry.model_fields_set}
            assert shown == set(type(entries[0]).model_fields)
        assert set(config.capabilities) == set(CAPABILITIES)

    def test_it_makes_the_cloud_that_it_says(self) -> None:
        with FakeCloud(read_config(EXAMPLE.read_bytes())) as cloud:
            assert len(cloud.console.instances()) == 5003
            assert cloud.console.instance("control-1").addresses == (
                ("InternalIP", "10.1.0.1"),
                ("InternalIP", "2001:db8:1::1"),
                ("ExternalIP", "192.0.2.1"),
                ("Hostname", "control-1"),
            )
            gpu = cloud.console.instance("gpu-2")
            assert gpu.addresses == (("InternalIP", "10.2.0.3"), ("Hostname", "gpu-2"))


class TestProblems:
    def test_all_are_told_at_once_with_their_paths(self) -> None:
        told = problems_of(
            {
                "max_batch": "x",
                "what": 1,
                "provider": "Bad Name",
                "capabilities": ["zones", "time-travel"],
                "instances": [{"name": "ok"}, {"name": "UP"}, {}, 7, {"name": "b", "addresses": {"InternalIP": "x"}}],
                "generate": [{"count": 3, "name": "same"}, {"count": 300, "network": "10.0.0.0/24"}],
                "latency": {"nope": 1, "*": [2, 1]},
                "load_balancers": {"ipv4": "everywhere", "color": "red"},
                "routes": {"existing": [{"name": "a", "destination_cidr": "10.0.0.1/8"}]},
                "volumes": [{"id": ""}],
                "on_demand": {"zones": []},
            }
        )
        paths = {line.partition(": ")[0] for line in told}
        assert paths >= {
            "max_batch", "what", "provider", "capabilities[1]", "instances[1].name", "instances[2].name",
            "instances[3]", "instances[4].addresses[0]", "generate[0]", "generate[1]", "latency.*",
            "load_balancers.ipv4", "load_balancers.color", "routes.existing[0].destination_cidr", "volumes[0].id",
            "on_demand.zones",
        }  # fmt: skip
        assert any(path.startswith("latency.nope") for path in paths)
        assert len(told) == len(set(told))

    @pytest.mark.parametrize(
        ("raw", "problem"),
        [
            ({"instances": [{"name": "a"}, {"name": "a"}]}, "instances: name a is taken twice"),
            ({"instances": [{"name": "a"}, {"name": "b", "id": "i-a"}]}, "instances: id i-a is taken twice"),
            (
                {"generate": [{"count": 2}, {"count": 1, "first": 1}]},
                "instances: name node-0001 is taken twice",
            ),
            (
                {"routes": {"existing": [{"name": name, "destination_cidr": "10.0.0.0/8"} for name in "ab"]}},
                "routes.existing: destination_cidr 10.0.0.0/8 is taken twice",
            ),
        ],
    )
    def test_what_is_taken_twice_is_told(self, raw: dict[str, Any], problem: str) -> None:
        assert problems_of(raw) == (problem,)

    @pytest.mark.parametrize("value", ["1x", "-1s", -0.5, float("nan"), float("inf"), None, {}])
    def test_bad_durations(self, value: object) -> None:
        with pytest.raises(ValidationError):
            FakeConfig.model_validate({"latency": {"*": value}})

    @pytest.mark.parametrize("pattern", ["{", "{x}", "node", "{:s}", "{}-{}", "{1}"])
    def test_bad_name_patterns(self, pattern: str) -> None:
        (told,) = problems_of({"generate": [{"count": 1, "name": pattern}]})
        assert told.startswith("generate[0]: 'name' must contain a place for the number")


class TestMachines:
    def test_five_thousand_in_a_line(self) -> None:
        entry = {"count": 5000, "types": ["s", "l"], "zones": ["a", "b", "c"], "network": "10.0.0.0/16"}
        made = machines(generate=[entry])
        assert len({one.name for one in made}) == len({one.addresses for one in made}) == 5000
        address = (("InternalIP", "10.0.19.136"), ("Hostname", "node-4999"))
        assert made[4999] == Instance("node-4999", "", "s", "b", "region-1", address)

        made = machines(generate=[{"count": 12, "types": ["s", "l"], "zones": ["a", "b"]}])
        assert {(one.type, one.zone) for one in made} == {(t, z) for t in "sl" for z in "ab"}

    def test_a_machine_without_addresses_has_one_of_its_own_and_its_name(self) -> None:
        with FakeCloud(FakeConfig.model_validate({"instances": [{"name": "a"}]})) as cloud:
            addresses = (("InternalIP", "198.18.166.252"), ("Hostname", "a"))
            wanted = Instance("a", "i-a", "standard-2", "zone-a", "region-1", addresses)
            assert cloud.console.instances() == [wanted]
