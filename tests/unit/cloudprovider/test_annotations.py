"""Annotations of Services: read with their types; every mistake is told at once, with what is
allowed."""

from __future__ import annotations

import enum
import json
from ipaddress import IPv4Network, IPv6Network
from typing import Any, assert_type

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models import V1ObjectMeta, V1Service

from cloudprovider import CloudProviderError, InvalidAnnotations, InvalidService
from cloudprovider.helpers import (
    BOOL,
    CIDR,
    JSON_OBJECT,
    PAIRS,
    TEXT,
    Duration,
    Integer,
    Kind,
    ListOf,
    Member,
    OneOf,
    ServiceAnnotations,
    Text,
    annotation,
    parse_duration,
    show_duration,
)
from cloudprovider.helpers import annotations as annotations_module


class Algorithm(enum.Enum):
    ROUND_ROBIN = "round-robin"
    LEAST = "least-connections"


class Acme(ServiceAnnotations, prefix="acme.example/", others=("status-*",)):
    internal = annotation("internal", BOOL, default=False, help="Only reachable\n    from inside | the VPC.")
    idle_timeout = annotation("idle-timeout", Duration(least=1, most=3600), default=60.0, help="Quiet connections.")
    algorithm = annotation("algorithm", Member(Algorithm), default=Algorithm.ROUND_ROBIN)
    certificate = annotation("certificate", Text(r"c-[0-9]+", "the ID of a certificate, such as c-12"))


class Needy(Acme):
    pool = annotation("pool", TEXT, required=True)


def service(**annotations: str) -> V1Service:
    given = {f"acme.example/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return V1Service(metadata=V1ObjectMeta(name="web", namespace="team", annotations={"other/x": "y", **given}))


def problems_of(declared: type[ServiceAnnotations], **annotations: str) -> tuple[str, ...]:
    with pytest.raises(InvalidAnnotations) as caught:
        declared.read(service(**annotations))
    return caught.value.problems


def test_values_have_their_types() -> None:
    given = {"internal": "true", "idle_timeout": " 1m30s ", "algorithm": "least-connections", "certificate": "c-7"}
    found = Acme.read(service(**given))
    assert assert_type(found.internal, bool) is True
    assert assert_type(found.idle_timeout, float) == 90.0
    assert assert_type(found.algorithm, Algorithm) is Algorithm.LEAST
    assert assert_type(found.certificate, str | None) == "c-7"
    assert_type(Needy.read(service(pool="blue")).pool, str)


def test_what_is_absent_has_its_default_and_the_configurations_comes_first() -> None:
    found = Acme.read(V1Service())
    assert (found.internal, found.idle_timeout, found.algorithm, found.certificate) == (
        False, 60.0, Algorithm.ROUND_ROBIN, None,
    )  # fmt: skip
    configured = Acme.read(service(internal="false"), defaults={"idle_timeout": 5.0, "internal": True})
    assert (configured.internal, configured.idle_timeout) == (False, 5.0)
    assert Needy.read(service(), defaults={"pool": "blue"}).pool == "blue"
    assert found == Acme.read(service())
    assert found != configured
    assert "idle_timeout=60.0" in repr(found)


@pytest.mark.row("P8")
def test_defaults_of_the_configuration_are_of_their_kind_and_for_something() -> None:
    with pytest.raises(TypeError, match="declares no 'idle'"):
        Acme.read(service(), defaults={"idle": 5.0})
    with pytest.raises(ValueError, match="Acme, defaults of the configuration: idle_timeout: the default 7200") as told:
        Acme.read(service(), defaults={"idle_timeout": 7200, "internal": "no", "certificate": "c-1"})
    assert "internal: the default 'no' must be true or false" in str(told.value)
    assert Acme.read(service(), defaults={"idle_timeout": None}).idle_timeout is None, "no default"


def test_all_mistakes_are_told_at_once_with_annotation_value_and_what_is_allowed() -> None:
    told = problems_of(Needy, internal="yes", idle_timeout="2h", certificate="x" * 500, algorithm="", internel="true")
    assert told == (
        "acme.example/internal: 'yes' cannot be used; allowed: true or false",
        "acme.example/idle-timeout: '2h' cannot be used; "
        "allowed: a duration such as 300ms, 10s or 1m30s, from 1s to 1h0m0s",
        "acme.example/algorithm: '' cannot be used; allowed: round-robin or least-connections",
        f"acme.example/certificate: '{'x' * 57}...' cannot be used; allowed: the ID of a certificate, such as c-12",
        "acme.example/pool: is required; allowed: a text",
        "acme.example/internel: unknown annotation; did you mean acme.example/internal?",
    )


def test_an_annotation_like_no_other_names_those_that_exist_and_others_are_left_alone() -> None:
    (told,) = problems_of(Acme, xyzzy="1")
    assert told.startswith("acme.example/xyzzy: unknown annotation; known: acme.example/internal, ")
    assert Acme.read(service(status_built="1")) == Acme.read(service())


def test_thousands_of_unknown_annotations_cost_no_more_than_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their owner could have the manager compare names for seconds, for each of his Services and
    whenever a node changes."""
    compared: list[str] = []

    def nearest(name: str, known: list[str]) -> str:
        compared.append(name)
        return ""

    monkeypatch.setattr(annotations_module, "nearest", nearest)
    found = problems_of(Acme, internal="maybe", **{f"x{number:04}": "" for number in range(5000)})
    assert compared == [f"x{number:04}" for number in range(10)]
    assert found[0].startswith("acme.example/internal: 'maybe' cannot be used")
    assert found[-1] == "4990 more annotations that begin with acme.example/ are unknown"
    assert len(found) == 12


def test_the_error_is_one_of_the_service_in_one_line() -> None:
    error = InvalidAnnotations("a: is wrong", "b: is wrong")
    assert isinstance(error, InvalidService)
    assert isinstance(error, CloudProviderError)
    assert str(error) == "a: is wrong; b: is wrong"


@pytest.mark.parametrize(
    ("base", "declared", "others", "says"),
    [
        (Acme, {"again": annotation("internal", BOOL)}, (), "internal' is declared twice"),
        (ServiceAnnotations, {"one": annotation("a b", BOOL)}, (), "must be letters, digits"),
        (ServiceAnnotations, {}, "status-*", r'others must be patterns .*others=\("status-\*",\)'),
        (ServiceAnnotations, {}, ("acme.example/status-*",), r'others must be patterns .*others=\("status-\*",\)'),
        *[
            (ServiceAnnotations, {name: annotation("x", BOOL)}, (), f"{name} is a name of ServiceAnnotations itself")
            for name in ("values", "read", "prefix", "declared")
        ],
    ],
)
def test_a_declaration_that_cannot_be_is_refused(
    base: type[ServiceAnnotations], declared: dict[str, Any], others: Any, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        type("Wrong", (base,), declared, prefix="acme.example/", others=others)


def test_the_table_for_the_docs() -> None:
    assert Needy.markdown_table() == (
        "| annotation | value | default | meaning |\n"
        "|---|---|---|---|\n"
        "| `acme.example/internal` | true or false | `false` | Only reachable from inside \\| the VPC. |\n"
        "| `acme.example/idle-timeout` | a duration such as 300ms, 10s or 1m30s, from 1s to 1h0m0s | `1m0s` "
        "| Quiet connections. |\n"
        "| `acme.example/algorithm` | round-robin or least-connections | `round-robin` |  |\n"
        "| `acme.example/certificate` | the ID of a certificate, such as c-12 |  |  |\n"
        "| `acme.example/pool` | a text | required |  |\n"
    )


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (BOOL, "T", True),
        (BOOL, "0", False),
        (Integer(), "-7", -7),
        (Integer(least=0, most=9), "9", 9),
        (Duration(), "-1.5h", -5400.0),
        (Duration(), "0", 0.0),
        (TEXT, "a b", "a b"),
        (OneOf("a", "b"), "b", "b"),
        (ListOf(Integer()), "1, 2,3", (1, 2, 3)),
        (ListOf(TEXT, least=0), "", ()),
        (ListOf(TEXT), ' a ,"b,c",\n  d\n', ("a", "b,c", "d")),
        (ListOf(CIDR), "10.0.0.7/24,fd00::/8", (IPv4Network("10.0.0.0/24"), IPv6Network("fd00::/8"))),
        (PAIRS, "team = web,stage=", {"team": "web", "stage": ""}),
        (JSON_OBJECT, '{"a": [1]}', {"a": [1]}),
    ],
)
def test_what_is_allowed(kind: Kind[Any], text: str, value: object) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (BOOL, "yes"),
        (BOOL, ""),
        (Integer(), "1.0"),
        (Integer(), "1_000"),
        (Integer(), "٣"),
        (Integer(least=0, most=9), "10"),
        (Duration(), "5 min"),
        (Duration(), "10"),
        (Duration(), "9999999999h"),
        (Duration(least=1), "999ms"),
        (TEXT, ""),
        (OneOf("a", "b"), "A"),
        (ListOf(TEXT), ""),
        (ListOf(TEXT), "a,,b"),
        (ListOf(TEXT), '"a'),
        (ListOf(TEXT, most=1), "a,b"),
        (ListOf(CIDR), "10.0.0.0"),
        (PAIRS, "a"),
        (PAIRS, "a=1,a=2"),
        (PAIRS, "=1"),
        (JSON_OBJECT, "[]"),
        (JSON_OBJECT, "{"),
    ],
)
def test_what_is_not_allowed(kind: Kind[Any], text: str) -> None:
    with pytest.raises(ValueError, match=r"^must |is not an IP range like"):
        kind.parse(text)
    assert kind.allowed


def test_json_that_nests_without_end_is_a_mistake_like_any_other() -> None:
    class Deep(ServiceAnnotations, prefix="acme.example/"):
        extra = annotation("extra", JSON_OBJECT)

    (told,) = problems_of(Deep, extra='{"a":' * 100_000)
    assert "allowed: a JSON object" in told


@given(st.integers(min_value=0, max_value=2**53))
def test_durations_are_shown_as_they_are_read(nanoseconds: int) -> None:
    text = show_duration(nanoseconds / 1e9)
    assert round(parse_duration(text) * 1e9) == pytest.approx(nanoseconds, abs=1)
    assert show_duration(-nanoseconds / 1e9).lstrip("-") == text


@given(st.text())
def test_whatever_is_written_is_a_value_or_a_mistake(text: str) -> None:
    for kind in (BOOL, Integer(), Duration(), TEXT, ListOf(TEXT), PAIRS, JSON_OBJECT, CIDR):
        try:
            kind.parse(text.strip())
        except ValueError:
            continue


@given(st.dictionaries(st.text(st.characters(codec="ascii", categories=["L"]), min_size=1), st.integers()))
def test_json_objects_are_read_back(value: dict[str, int]) -> None:
    assert JSON_OBJECT.parse(json.dumps(value)) == value
    assert JSON_OBJECT.parse(JSON_OBJECT.show(value)) == value


@pytest.mark.parametrize("text", ["1" * 250_000, "1" * 250_000 + ".", "1." * 100_000, "1h" * 100_000 + "1"])
def test_a_duration_of_many_digits_is_refused_at_once(text: str) -> None:
    """Divided in every way, these took minutes, in which nothing else of the process ran."""
    with pytest.raises(ValueError, match="must be a duration"):
        parse_duration(text)


def _declared(prefix: str, **declared: Any) -> type[ServiceAnnotations]:
    return type("Wrong", (ServiceAnnotations,), declared, prefix=prefix)


@pytest.mark.row("P8")
@pytest.mark.parametrize(
    ("kind", "default", "says"),
    [
        (BOOL, "false", "size: the default 'false' must be true or false"),
        (Duration(least=1, most=60), 3600, "size: the default 3600 must be a duration"),
        (OneOf("small", "large"), "huge", "size: the default 'huge' must be small or large"),
        (TEXT, 3, "size: the default 3 must be a text"),
        (Text("[a-z]+"), "A", "size: the default 'A' must be a text that matches"),
        (Member(Algorithm), "round-robin", "must be a member of Algorithm"),
        (ListOf(Integer()), "1,2", "must be a list or a tuple"),
        (ListOf(Integer()), ("1",), "must be a whole number"),
        (PAIRS, {"a": 1}, "must be a mapping of texts to texts"),
        (JSON_OBJECT, "{}", "must be a mapping"),
        (CIDR, "10.0.0.0/24", "must be an IPv4Network or an IPv6Network"),
        (int, None, r"size: int is no kind of values, write Integer\(\)"),
        (bool, True, "size: bool is no kind of values, write BOOL"),
        (Integer, None, r"size: Integer is no kind of values, write Integer\(\)"),
        ("text", None, "size: 'text' is no kind of values, write a Kind"),
    ],
)
def test_what_is_declared_wrongly_is_refused_with_the_class(kind: Any, default: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        _declared("acme.example/", size=annotation("size", kind, default=default))


@pytest.mark.row("P8")
def test_all_that_is_wrong_with_a_declaration_is_told_at_once() -> None:
    wrong: Any = int
    with pytest.raises(ValueError, match="Wrong: ") as caught:
        _declared("acme.example", size=annotation("size", wrong), inner=annotation("inner", BOOL, default="false"))
    told = str(caught.value)
    assert 'the prefix \'acme.example\' has no "/", which ends the domain: write prefix="acme.example/"' in told
    assert "size: int is no kind" in told
    assert "inner: the default 'false' must be true or false" in told


def test_defaults_that_no_annotation_could_say_may_be_declared() -> None:
    made = _declared(
        "acme.example/lb-", name=annotation("name", TEXT, default=""), more=annotation("more", ListOf(TEXT), default=())
    )
    assert made.read(service()).values == {"name": "", "more": ()}


def test_kinds_that_are_values_say_what_they_are() -> None:
    for kind in (BOOL, CIDR, PAIRS, JSON_OBJECT, TEXT):
        assert kind.__doc__
        assert "Kind" not in kind.__doc__
