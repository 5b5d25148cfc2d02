"""A provider's configuration: one value from file, environment and files of secrets, or every
problem at once."""

from __future__ import annotations

import json
from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import Field, SecretBytes, SecretStr

from cloudprovider import CloudConfig, CloudProviderError
from cloudprovider.config import InvalidConfig, ProviderConfig, Seconds
from cloudprovider.helpers import BOOL, CIDR, PAIRS, Duration, Integer, ListOf
from cloudprovider.internal import cleaning


class Limits(ProviderConfig):
    burst: int = Field(default=10, ge=1, description="Calls | at once.")
    pause: Seconds = 1.0


class Acme(ProviderConfig):
    """The configuration of acme."""

    env_prefix: ClassVar[str] = "ACME_"

    region: str = Field(description="Where it is.")
    token: SecretStr
    mode: Literal["vpc", "classic"] = "vpc"
    zones: tuple[str, ...] = ()
    limits: Limits = Limits()
    pools: dict[str, Limits] = Field(default_factory=dict)
    proxy: str | None = None


class Kinds(ProviderConfig):
    env_prefix: ClassVar[str] = "ACME_"

    strict: Annotated[bool, BOOL] = False
    port: Annotated[int, Integer(1, 65535)] = 443
    pause: Annotated[float, Duration(least=1)] = 60.0
    ranges: Annotated[tuple[IPv4Network, ...], ListOf(CIDR, most=2)] = (IPv4Network("10.0.0.0/8"),)
    tags: Annotated[dict[str, str], PAIRS] = Field(default_factory=dict)


def source(text: str, path: str = "acme.yaml") -> CloudConfig:
    return CloudConfig(path=path, data=text.encode())


def problems_of(text: str, path: str = "acme.yaml", **environ: str) -> tuple[str, ...]:
    with pytest.raises(InvalidConfig) as caught:
        Acme.load(source(text, path), environ=environ)
    assert str(caught.value) == "\n".join(caught.value.problems)
    assert isinstance(caught.value, CloudProviderError)
    return caught.value.problems


GOOD = "region: north\ntoken: hunter2\n"


def test_yaml_json_and_ini_say_the_same() -> None:
    yaml = GOOD + "zones: [a, b]\nlimits: {burst: 3, pause: 1m30s}\npools: {big: {burst: 7}}\n"
    as_json = json.dumps(
        {
            "region": "north",
            "token": "hunter2",
            "zones": ["a", "b"],
            "limits": {"burst": 3, "pause": 90},
            "pools": {"big": {"burst": 7}},
        }
    )
    ini = '[Global]\nRegion=north\ntoken="hunter2"\nzones=a\nzones=b\n'
    ini += '[Limits]\nburst=3\npause=1m30s\n[pools "big"]\nburst=7\n'
    found = [Acme.load(source(text), environ={}) for text in (yaml, as_json)]
    found.append(Acme.load(source(ini, "cloud.conf"), environ={}))
    assert found[0] == found[1] == found[2]
    assert (found[0].zones, found[0].limits.pause, found[0].pools["big"].burst) == (("a", "b"), 90.0, 7)


class Named(ProviderConfig):
    one_by_one: tuple[str, ...] = ()


class Sections(ProviderConfig):
    pool: dict[str, Named]


def test_sections_of_ini_may_have_dashes_and_lists_and_an_empty_object_is_set_by_variables() -> None:
    assert Sections.load(source('[Pool "big"]\nOne-By-One=a, b\n', "cloud.conf")).pool["big"].one_by_one == ("a", "b")
    assert Acme.load(source(GOOD + "limits:\n"), environ={"ACME_LIMITS__BURST": "4"}).limits == Limits(burst=4)


def test_without_a_file_the_environment_is_enough_and_over_a_file_it_counts_more(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("hunter2\n")
    environ = {
        "ACME_REGION": "south",
        "ACME_TOKEN_FILE": str(secret),
        "ACME_ZONES": "a, b",
        "ACME_LIMITS__BURST": "4",
        "ACME_POOLS": '{"big": {"pause": "2s"}}',
        "ACME_PROXY": "",
    }
    alone = Acme.load(None, environ=environ)
    assert (alone.region, alone.token.get_secret_value(), alone.zones) == ("south", "hunter2", ("a", "b"))
    assert (alone.limits.burst, alone.pools["big"].pause, alone.proxy) == (4, 2.0, None)
    over = Acme.load(source(GOOD + "mode: classic\nlimits: {burst: 9, pause: 5}\n"), environ=environ)
    assert (over.region, over.mode, over.limits) == ("south", "classic", Limits(burst=4, pause=5))
    assert Acme.config_files(source(GOOD), environ=environ) == ("acme.yaml", str(secret))


def test_every_problem_is_told_at_once_with_its_place_and_what_is_allowed() -> None:
    text = "regoin: north\nmode: vcp\nlimits:\n  burst: 0\n  puase: 1\npools:\n  big:\n    pause: long\n"
    told = problems_of(text, ACME_ZONES="[1", ACME_LIMITS__PAUSE="5 min", ACME_TOKEN="t", ACME_TOKEN_FILE="/t")
    assert set(told) == {
        "ACME_TOKEN: is set, and so is ACME_TOKEN_FILE: set one of them",
        "acme.yaml, line 1: regoin: unknown field; did you mean region?",
        "acme.yaml: region: is required (or ACME_REGION, ACME_REGION_FILE)",
        "acme.yaml, line 2: mode: must be 'vpc' or 'classic'",
        "acme.yaml, line 4: limits.burst: must be greater than or equal to 1",
        "acme.yaml, line 5: limits.puase: unknown field; did you mean pause?",
        "acme.yaml, line 8: pools.big.pause: must be a duration such as 300ms, 10s or 1m30s, or a number of seconds",
        "ACME_LIMITS__PAUSE: must be a duration such as 300ms, 10s or 1m30s, or a number of seconds",
        "ACME_ZONES: must be a valid tuple",
    }


def test_what_only_follows_from_an_unreadable_file_is_not_told() -> None:
    assert problems_of("a: [1\n") == ("acme.yaml, line 2: is not YAML: expected ',' or ']', but got '<stream end>'",)
    assert problems_of("region: x\n", ACME_TOKEN_FILE="/no/such/file") == (
        "ACME_TOKEN_FILE: cannot read /no/such/file: No such file or directory",
    )
    with pytest.raises(InvalidConfig, match="is not UTF-8 text"):
        Acme.load(CloudConfig(path="acme.yaml", data=b"\xff"), environ={})


def test_secrets_are_shown_nowhere() -> None:
    found = Acme.load(source(GOOD), environ={})
    assert "hunter2" not in repr(found) + str(found) + found.model_dump_json()
    for text in ("token: [hunter2]\nregion: {x: hunter2}\n", 'token: "hunter2\n', "token: hunter2\nmode: hunter2\n"):
        assert not any("hunter2" in line for line in problems_of(text))


def test_a_value_is_frozen_and_can_be_compared() -> None:
    found = Acme.load(source(GOOD), environ={})
    assert found == Acme.load(source(GOOD + "# again\n"), environ={})
    with pytest.raises(ValueError, match="frozen"):
        found.region = "south"


def test_schema_and_table_for_the_docs() -> None:
    schema = json.loads(Acme.json_schema())
    assert schema["required"] == ["region", "token"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["token"]["writeOnly"] is True
    assert Acme.markdown_table() == (
        "| field | variable | default | meaning |\n"
        "|---|---|---|---|\n"
        "| `region` | `ACME_REGION` | required | Where it is. |\n"
        "| `token` | `ACME_TOKEN` | required |  |\n"
        "| `mode` | `ACME_MODE` | `vpc` |  |\n"
        "| `zones` | `ACME_ZONES` |  |  |\n"
        "| `limits.burst` | `ACME_LIMITS__BURST` | `10` | Calls \\| at once. |\n"
        "| `limits.pause` | `ACME_LIMITS__PAUSE` | `1.0` |  |\n"
        "| `pools` | `ACME_POOLS` |  |  |\n"
        "| `proxy` | `ACME_PROXY` |  |  |\n"
    )


class Pool(ProviderConfig):
    name: str


class Pooled(ProviderConfig):
    env_prefix: ClassVar[str] = "ACME_"

    pools: tuple[Pool, ...] = ()
    first: Pool
    second: Pool = Pool(name="b")


def test_only_a_variable_that_is_read_is_named() -> None:
    with pytest.raises(InvalidConfig) as caught:
        Pooled.load(source("pools: [{}]\nsecond: {}\n"), environ={})
    assert caught.value.problems == (
        "acme.yaml: pools[0].name: is required",
        "acme.yaml: first: is required",
        "acme.yaml: second.name: is required (or ACME_SECOND__NAME, ACME_SECOND__NAME_FILE)",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[Limits]\nburst = 2\n[limits]\npause = 3\n", "acme.ini, line 3: limits: is written in another way in line 1"),
        ("Zones = a\nzones = b\n", "acme.ini, line 2: zones: is written in another way in line 1"),
        ("[limits]\nburst = 2\nBurst = 3\n", "acme.ini, line 3: Burst: is written in another way in line 2"),
    ],
)
def test_a_name_that_is_written_in_two_ways_loses_nothing(text: str, problem: str) -> None:
    assert problems_of(f"{text}[Global]\nregion = north\ntoken = hunter2\n", "acme.ini") == (problem,)


class Keys(ProviderConfig):
    env_prefix: ClassVar[str] = "KEYS_"

    token: SecretStr = SecretStr("")
    spare: tuple[SecretStr, ...] = ()
    raw: SecretBytes = SecretBytes(b"")
    pin: SecretStr = SecretStr("")


@pytest.mark.row("X2")
def test_secrets_are_masked_wherever_they_come_from(tmp_path: Path) -> None:
    """Of a file --cloud-config says nothing of, a variable, or a rotation."""
    file = tmp_path / "token"
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----\n"
    for token in ("correct-horse", "battery-staple", key):
        file.write_text(token)
        environ = {"KEYS_TOKEN_FILE": str(file), "KEYS_SPARE": "tr0ub4dor-a,tr0ub4dor-b", "KEYS_RAW": "raw-horse"}
        Keys.load(environ={**environ, "KEYS_PIN": "1234"})
    line = cleaning.of_process().line
    for secret in ("correct-horse", "battery-staple", "tr0ub4dor-a", "tr0ub4dor-b", "raw-horse"):
        assert line(f"refused {secret} of it") == "refused *** of it"
    assert "BADANBgkqhkiG9w0B" not in line("near BADANBgkqhkiG9w0BAQ")
    assert line("1234 nodes, a PRIVATE KEY") == "1234 nodes, a PRIVATE KEY"


@pytest.mark.parametrize("text", ["limits: 3\n", "limits: [3]\n"])
def test_what_stands_in_the_place_of_an_object_is_refused_though_a_variable_sets_a_part_of_it(text: str) -> None:
    told = problems_of(GOOD + text, ACME_LIMITS__BURST="4")
    assert told == ("acme.yaml, line 3: limits: must be a valid dictionary or instance of Limits",)


WANTED = Kinds(
    strict=True, port=80, pause=90.0, ranges=(IPv4Network("10.0.0.0/24"), IPv4Network("10.1.0.0/16")), tags={"a": "b"}
)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("strict: true\nport: 80\npause: 90\nranges: [10.0.0.7/24, 10.1.0.0/16]\ntags: {a: b}\n", "acme.yaml"),
        ('strict: "T"\nport: "80"\npause: 1m30s\nranges: 10.0.0.7/24,10.1.0.0/16\ntags: a=b\n', "acme.yaml"),
        ("strict=1\nport=80\npause=1m30s\nranges=10.0.0.7/24, 10.1.0.0/16\ntags=a=b\n", "cloud.conf"),
    ],
)
def test_the_kinds_of_annotations_are_types_of_fields_and_of_variables(text: str, path: str) -> None:
    assert Kinds.load(source(text, path), environ={}) == WANTED
    assert Kinds.model_json_schema()["properties"]["port"]["type"] == "integer"
    environ = {"ACME_STRICT": "TRUE", "ACME_PORT": " 80", "ACME_PAUSE": "90s", "ACME_TAGS": "a=b"}
    assert Kinds.load(None, environ={**environ, "ACME_RANGES": "10.0.0.7/24,10.1.0.0/16"}) == WANTED


def test_what_a_kind_does_not_allow_is_refused_in_its_words_as_a_text_and_as_a_value() -> None:
    with pytest.raises(InvalidConfig) as caught:
        Kinds.load(source("port: 70000\npause: .inf\nstrict: 1\nranges: []\n"), environ={"ACME_TAGS": "a"})
    assert set(caught.value.problems) == {
        "acme.yaml, line 1: port: must be a whole number, from 1 to 65535",
        "acme.yaml, line 2: pause: must be a finite number",
        "acme.yaml, line 3: strict: must be true or false",
        "acme.yaml, line 4: ranges: must be a comma-separated list (at most 2), each an IP range such as 10.0.0.0/24",
        "ACME_TAGS: must be pairs such as team=web,stage=test",
    }
    with pytest.raises(InvalidConfig, match="pause: must be a duration such as 300ms, 10s or 1m30s, at least 1s"):
        Kinds.load(source("pause: 999ms\n"), environ={})
