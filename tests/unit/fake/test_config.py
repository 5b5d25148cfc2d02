"""Configuration files: what is read, what is made of it, and that all of what is wrong is told at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider import CloudConfig
from cloudprovider.testing.fake import FakeCloud, FakeConfig, FakeConfigError, InstanceConfig, parse_config, read_config
from cloudprovider.testing.fake.config import CAPABILITIES
from cloudprovider.testing.fake.expand import expand
from cloudprovider.testing.fake.faults import Raise
from cloudprovider.testing.fake.records import Instance

ACTIONS = {"raise", "throttle", "hang", "wrong", "partial", "expired-credentials", "half-built"}
EXAMPLE = Path(__file__).parents[3] / "examples" / "fake-cloud.yaml"


def problems_of(raw: Any) -> tuple[str, ...]:
    with pytest.raises(FakeConfigError) as caught:
        parse_config(raw)
    return caught.value.problems


class TestFile:
    def test_yaml_and_json_are_read_alike(self) -> None:
        raw = {"seed": 3, "instances": [{"name": "a"}], "latency": {"*": 0.5}}
        yaml = b"seed: 3\ninstances: [{name: a}]\nlatency: {'*': 500ms}\n"
        assert read_config(json.dumps(raw).encode()) == read_config(yaml) == parse_config(raw)

    @pytest.mark.parametrize("data", [b"", b"# nothing\n", b"{}", b"\xef\xbb\xbf{}"])
    def test_an_empty_file_gives_the_defaults(self, data: bytes) -> None:
        assert read_config(data) == FakeConfig()

    def test_a_field_without_a_value_keeps_its_default(self) -> None:
        assert read_config(b"seed:\ninstances:\nlatency:\n") == FakeConfig()

    @pytest.mark.parametrize(
        ("data", "problem"),
        [
            (b"a: [", r"line 2, column 1"),
            (b"seed: 1\nseed: 2", r"line 2: 'seed' is given twice"),
            (b"instances: [{name: a, zone: x, zone: y}]", r"line 1: 'zone' is given twice"),
            (b"\xff\xfe", r"not UTF-8"),
            (b"- 1", r"must hold fields"),
            (b"just text", r"must hold fields"),
            (b"x: !!python/object/apply:os.getcwd []", r"line 1, column 4"),
            (b"seed: 1\n---\nseed: 2", r"line 2"),
        ],
    )
    def test_what_is_no_configuration_is_told_by_its_place(self, data: bytes, problem: str) -> None:
        with pytest.raises(FakeConfigError, match=problem):
            read_config(data, "cloud.yaml")

    def test_unknown_values_are_not_quoted(self) -> None:
        """Somebody may point --cloud-config at another cloud's file, with its password."""
        for data in (b"password: hunter2", b"password: hunter2\n  x: [", b"seed: hunter2", b"instances: hunter2"):
            with pytest.raises(FakeConfigError) as caught:
                read_config(data)
            assert "hunter2" not in str(caught.value)

    @given(st.binary(max_size=60))
    def test_any_bytes_are_read_or_refused(self, data: bytes) -> None:
        try:
            config = read_config(data)
        except FakeConfigError:
            return
        assert isinstance(config, FakeConfig)


class TestExample:
    def test_it_is_complete(self) -> None:
        """Every field of every section, and every action with all of its fields, stands in the example."""
        text = EXAMPLE.read_text()
        config = read_config(EXAMPLE.read_bytes())
        assert config.model_fields_set == set(FakeConfig.model_fields) - {"state"}
        assert "\n# state: " in text
        for section in ("load_balancers", "routes", "on_demand"):
            value = getattr(config, section)
            unset = set(type(value).model_fields) - value.model_fields_set
            assert unset <= {"addresses", "labels"}, f"{section} does not show {unset}"
        for entries in (config.instances, config.generate, config.volumes, config.clusters):
            shown = {name for entry in entries for name in entry.model_fields_set}
            assert shown == set(type(entries[0]).model_fields)
        actions = {fault.action: fault for fault in config.faults}
        assert set(actions) == ACTIONS
        for field in {name for fault in config.faults for name in type(fault).model_fields}:
            assert field in text
        assert set(config.capabilities) == set(CAPABILITIES)

    def test_it_makes_the_cloud_that_it_says(self) -> None:
        with FakeCloud(read_config(EXAMPLE.read_bytes())) as cloud:
            assert len(cloud.console.instances()) == 5003
            control = cloud.console.instance("control-1")
            assert control.addresses == (
                ("InternalIP", "10.1.0.1"),
                ("InternalIP", "2001:db8:1::1"),
                ("ExternalIP", "192.0.2.1"),
                ("Hostname", "control-1"),
            )
            gpu = cloud.console.instance("gpu-north-1b-1")
            assert gpu.addresses == (
                ("InternalIP", "10.2.0.2"),
                ("InternalIP", "2001:db8:2::2"),
                ("ExternalIP", "198.51.100.1"),
                ("InternalDNS", "gpu-north-1b-1.north-1b.cloud.example"),
                ("Hostname", "gpu-north-1b-1"),
            )
            assert gpu.labels == {"cloud.example/serial": "sn-000001"}
            assert len(cloud.faults.list()) == 9


class TestProblems:
    def test_all_are_told_at_once_with_their_paths(self) -> None:
        told = problems_of(
            {
                "seed": "x",
                "what": 1,
                "provider": "Bad Name",
                "capabilities": ["zones", "time-travel"],
                "instances": [{"name": "ok"}, {"name": "UP"}, {}, 7, {"name": "b", "addresses": {"InternalIP": "x"}}],
                "generate": [{"count": 3, "name": "same"}, {"count": 300, "network": "10.0.0.0/24"}],
                "latency": {"nope": 1, "*": [2, 1], "zone": "fast"},
                "load_balancers": {"ipv4": "2001:db8::/64", "hostname": "{zone}", "color": "red"},
                "routes": {"existing": [{"name": "a", "destination_cidr": "10.0.0.1/8"}]},
                "faults": [
                    {"action": "raise", "error": "Nope"},
                    {"action": "explode"},
                    {},
                    {"action": "hang", "for": 3},
                ],
                "volumes": [{"id": ""}],
                "on_demand": {"zones": []},
            }
        )
        paths = {line.partition(": ")[0] for line in told}
        assert paths >= {
            "seed", "what", "provider", "capabilities[1]", "instances[1].name", "instances[2].name", "instances[3]",
            "instances[4].addresses[0]", "generate[0]", "generate[1]", "latency.nope", "latency.*", "latency.zone",
            "load_balancers.ipv4", "load_balancers.hostname", "load_balancers.color",
            "routes.existing[0].destination_cidr", "faults[0].error", "faults[1].action", "faults[2].action",
            "faults[3].for", "volumes[0].id", "on_demand.zones",
        }  # fmt: skip
        assert len(told) == len(set(told))

    def test_what_spans_entries_is_told_beside_what_does_not(self) -> None:
        told = problems_of(
            {
                "seed": "x",
                "instances": [{"name": 3}, {"name": "a"}, {"name": "b", "id": "i-a"}, {"name": "a", "id": "other"}],
                "generate": [{"count": 2, "name": "n-{}"}, {"count": 9, "name": "n-{i}"}, {"count": 1, "name": "N{}"}],
                "volumes": [{"id": "v"}, {"id": "v"}],
                "clusters": [{"name": "c"}, {"name": "c"}, {"name": "c"}],
                "faults": [{"action": "hang", "name": "f"}, {"action": "hang", "name": "f"}],
                "routes": {"existing": [{"name": "r", "destination_cidr": "10.0.0.0/8"}] * 2},
            }
        )
        assert told == (
            "seed: should be a valid integer",
            "instances[0].name: should be a valid string",
            "instances[2].id: i-a is taken already, by instances[1]",
            "instances[3].name: a is taken already, by instances[1]",
            "generate[1].name: n-0 is taken already, by generate[0]",
            "generate[1].id: i-n-0 is taken already, by generate[0]",
            "generate[1].name: n-1 is taken already, by generate[0]",
            "generate[1]: 1 more problems of this kind",
            "generate[2].name: makes 'N0', which is no node name",
            "volumes: v is the id of several",
            "clusters: c is the name of several",
            "faults: f is the name of several",
            "routes.existing: 10.0.0.0/8 is the destination_cidr of several",
            "routes.existing: r is the name of several",
        )

    def test_three_of_a_kind_are_told_one_by_one(self) -> None:
        assert problems_of({"generate": [{"count": 3, "name": "N{}"}]}) == (
            "generate[0].name: makes 'N0', which is no node name",
            "generate[0].name: makes 'N1', which is no node name",
            "generate[0].name: makes 'N2', which is no node name",
        )

    @pytest.mark.parametrize("value", ["1x", "-1s", -0.5, float("nan"), float("inf"), True, None, [], {}])
    def test_bad_durations(self, value: object) -> None:
        assert problems_of({"busy_timeout": value} if value is not None else {"latency": {"*": None}})

    @pytest.mark.parametrize(
        ("value", "seconds"), [(2, 2.0), (0.25, 0.25), ("250ms", 0.25), ("1m30s", 90.0), ("0", 0.0), (0, 0.0)]
    )
    def test_good_durations(self, value: object, seconds: float) -> None:
        assert parse_config({"busy_timeout": value}).busy_timeout == seconds

    @pytest.mark.parametrize(
        "pattern",
        [
            "{",
            "{x}",
            "node",
            "{i.real}",
            "{i!r}",
            "{i:{i}}",
            "{i:s}",
            "{name}",
            "{}-{i}",
            "{zone:5}-{i}",
            "{i[0]}",
            "{0}",
        ],
    )
    def test_bad_name_patterns(self, pattern: str) -> None:
        (told,) = problems_of({"generate": [{"count": 1, "name": pattern}]})
        assert told.startswith("generate[0]: ")

    @pytest.mark.parametrize(
        "fault",
        [
            {"action": "raise", "method": "nope"},
            {"action": "raise", "method": ["get_zone", 3]},
            {"action": "raise", "times": 0},
            {"action": "raise", "times": True},
            {"action": "raise", "probability": 0},
            {"action": "raise", "probability": 1.1},
            {"action": "raise", "start": 5, "stop": 5},
            {"action": "raise", "skip": -1},
            {"action": "raise", "scope": "all"},
            {"action": "throttle", "retry_after": -1},
            {"action": "throttle", "error": "ValueError"},
            {"action": "hang", "mode": "forever"},
            {"action": "wrong"},
            {"action": "wrong", "answer": "stale", "junk": "none"},
            {"action": "wrong", "answer": "junk", "age": 3},
            {"action": "wrong", "answer": "junk", "method": "delete_route"},
            {"action": "wrong", "answer": "not-found", "method": "ensure_load_balancer"},
            {"action": "partial", "method": "instance_metadata"},
            {"action": "partial", "drop": 0},
            {"action": "half-built", "method": "create_route"},
        ],
    )
    def test_bad_faults(self, fault: dict[str, object]) -> None:
        assert all(line.startswith("faults[0]") for line in problems_of({"faults": [fault]}))

    def test_the_same_checks_hold_for_a_configuration_made_in_python(self) -> None:
        with pytest.raises(FakeConfigError, match=r"instances\[1\]\.name: a is taken"):
            FakeCloud(FakeConfig(instances=(InstanceConfig(name="a"), InstanceConfig(name="a"))))
        with pytest.raises(ValueError, match="no method"):
            Raise(method="nope")

    def test_nothing_is_made_by_a_bad_file(self, tmp_path: Path) -> None:
        from cloudprovider.testing.fake import new_provider

        data = b"state: cloud.sqlite\nseed: x\n"
        with pytest.raises(FakeConfigError, match=r"cloud\.yaml"):
            new_provider(CloudConfig(str(tmp_path / "cloud.yaml"), data))
        assert list(tmp_path.iterdir()) == []


class TestWorld:
    def made(self, **generator: Any) -> list[Instance]:
        return expand(parse_config({"generate": [generator]})).instances

    def test_five_lines_make_five_thousand(self) -> None:
        made = self.made(count=5000, name="node-{:04d}", types=["s", "l"], zones=["a", "b", "c"], network="10.0.0.0/16")
        assert len({one.name for one in made}) == len({one.id for one in made}) == 5000
        assert len({one.addresses for one in made}) == 5000
        assert made[4999] == Instance(
            "node-4999", "i-node-4999", "s", "b", "region-1", (("InternalIP", "10.0.19.136"), ("Hostname", "node-4999"))
        )

    def test_every_zone_gets_every_type(self) -> None:
        made = self.made(count=12, types=["s", "l"], zones=["a", "b"])
        assert {(one.type, one.zone) for one in made} == {(t, z) for t in "sl" for z in "ab"}

    def test_a_machine_without_addresses_has_its_name(self) -> None:
        assert expand(parse_config({"instances": [{"name": "a"}]})).instances == [
            Instance("a", "i-a", "standard-2", "zone-a", "region-1", (("Hostname", "a"),))
        ]

    def test_none_is_made_of_nothing(self) -> None:
        assert self.made() == []

    def test_no_network_no_internal_address(self) -> None:
        (one,) = self.made(count=1, network=[])
        assert one.addresses == (("Hostname", "node-0000"),)

    def test_a_pattern_that_makes_no_ip_is_told(self) -> None:
        (told,) = problems_of({"generate": [{"count": 1, "addresses": {"ExternalIP": "{name}"}}]})
        assert told == "generate[0].addresses.ExternalIP: makes 'node-0000', which is no IP address"
