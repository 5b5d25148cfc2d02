"""Provider IDs: reading, checking, and whose node it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider import (
    CloudProviderError,
    InstanceNotFound,
    Instances,
    Interface,
    NotImplementedByProvider,
)
from cloudprovider.helpers import (
    Ownership,
    ProviderID,
    format_provider_id,
    get_instance_provider_id,
    is_owned,
    ownership,
    parse_provider_id,
    provider_id_problems,
    same_provider_id,
)


@pytest.mark.parametrize(
    ("text", "provider", "instance", "name"),
    [
        ("aws:///eu-west-1a/i-0abc", "aws", "/eu-west-1a/i-0abc", "i-0abc"),
        ("gce://project/zone/vm-1", "gce", "project/zone/vm-1", "vm-1"),
        ("hcloud://123", "hcloud", "123", "123"),
        ("azure:///subscriptions/a/vms/b/", "azure", "/subscriptions/a/vms/b/", "b"),
        ("openstack:///8e2c", "openstack", "/8e2c", "8e2c"),
        ("x://a://b", "x", "a://b", "b"),
    ],
)
def test_the_parts_of_a_provider_id(text: str, provider: str, instance: str, name: str) -> None:
    parsed = parse_provider_id(text)
    assert parsed == ProviderID(provider, instance)
    assert parsed.name == name
    assert str(parsed) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "lacks '://'"),
        ("i-0abc", "lacks '://'"),
        ("aws:/i-0abc", "lacks '://'"),
        ("://i-0abc", "begin with the provider's name"),
        ("a b://i", "begin with the provider's name"),
        ("aws://", "names no instance"),
        ("aws:///", "names no instance"),
        ("aws://i 1", "blanks or control characters"),
        ("aws://i\n", "blanks or control characters"),
        ("aws://\x00i", "blanks or control characters"),
    ],
)
def test_what_is_wrong_with_a_provider_id(text: str, told: str) -> None:
    assert told in "; ".join(provider_id_problems(text))
    with pytest.raises(ValueError, match="provider ID"):
        parse_provider_id(text)


@given(
    st.from_regex(r"[a-z][a-z0-9-]{0,9}[a-z0-9]", fullmatch=True), st.from_regex(r"/?[!-~]*[!-.0-~]", fullmatch=True)
)
def test_formatting_and_parsing_are_inverse(provider: str, instance: str) -> None:
    text = format_provider_id(provider, instance)
    assert parse_provider_id(text) == ProviderID(provider, instance)


@given(st.text())
def test_parsing_accepts_exactly_what_has_no_problems(text: str) -> None:
    if provider_id_problems(text):
        with pytest.raises(ValueError, match="provider ID"):
            parse_provider_id(text)
    else:
        assert str(parse_provider_id(text)) == text


@pytest.mark.row("P7")
@pytest.mark.parametrize("instance", ["None", "null", "undefined", "<nil>", "zone-1/None", "None/i-1"])
def test_a_missing_value_makes_no_provider_id(instance: str) -> None:
    with pytest.raises(ValueError, match="made of a value that was not there"):
        format_provider_id("acme", instance)
    fine = f"{instance}-1".replace("/", "-")
    assert format_provider_id("acme", fine) == f"acme://{fine}"


@pytest.mark.row("P7")
@pytest.mark.parametrize("instance", ["", None, 7, b"i-1", ["i-1"]])
def test_what_is_no_text_makes_no_provider_id(instance: Any) -> None:
    told = "names no instance" if instance == "" else "the instance must be text, and is of type"
    with pytest.raises((TypeError, ValueError), match=told):
        format_provider_id("acme", instance)
    if instance != "":
        with pytest.raises(TypeError, match="the provider must be text"):
            format_provider_id(instance, "i-1")


@pytest.mark.parametrize(
    ("provider_id", "prefixes", "whose"),
    [
        ("acme://1", ["acme://"], Ownership.OURS),
        ("acme-old://1", ["acme://", "acme-old://"], Ownership.OURS),
        ("acme2://1", ["acme://"], Ownership.FOREIGN),
        ("aws:///z/i", ["acme://"], Ownership.FOREIGN),
        ("ACME://1", ["acme://"], Ownership.FOREIGN),
        ("", ["acme://"], Ownership.UNKNOWN),
        (None, ["acme://"], Ownership.UNKNOWN),
        (None, [], Ownership.OURS),
        ("acme://1", [], Ownership.FOREIGN),
        ("acme://1", [""], Ownership.FOREIGN),
        (None, [""], Ownership.OURS),
    ],
)
def test_whose_node_it_is(provider_id: str | None, prefixes: list[str], whose: Ownership) -> None:
    assert ownership(provider_id, prefixes) is whose
    assert ownership(provider_id, iter(prefixes)) is whose
    assert is_owned(provider_id, prefixes) is (whose is Ownership.OURS)


class Cloud(Interface):
    def __init__(self, instances: Instances | None) -> None:
        self._instances = instances

    def provider_name(self) -> str:
        return "acme"

    def instances(self) -> Instances | None:
        return self._instances


class Known(Instances):
    def instance_id(self, node_name: str) -> str:
        if node_name != "n1":
            raise InstanceNotFound(node_name)
        return "zone/i-1"


Known.__abstractmethods__ = frozenset()


def test_a_provider_id_can_be_asked_from_the_older_interface() -> None:
    cloud = Cloud(Known())  # type: ignore[abstract]  # the rest of the methods is of no concern here
    assert get_instance_provider_id(cloud, "n1") == "acme://zone/i-1"
    with pytest.raises(InstanceNotFound):
        get_instance_provider_id(cloud, "n2")
    with pytest.raises(NotImplementedByProvider, match="acme"):
        get_instance_provider_id(Cloud(None), "n1")


@pytest.mark.parametrize("answer", [None, "", 7])
def test_what_is_no_instance_id_makes_no_provider_id(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Known, "instance_id", lambda *_: answer)
    with pytest.raises(CloudProviderError, match="'acme': instance_id"):
        get_instance_provider_id(Cloud(Known()), "n1")  # type: ignore[abstract]


@pytest.mark.row("N18")
@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("openstack:///u-1", "openstack://RegionOne/u-1", True),
        ("openstack://RegionOne/u-1", "openstack:///U-1", True),
        ("azure:///subscriptions/A/vms/b", "azure:///subscriptions/a/vms/B", True),
        ("hcloud://123", "hcloud:///123", True),
        ("openstack://RegionOne/u-1", "openstack://RegionTwo/u-1", False),
        ("openstack:///u-1", "openstack:///u-2", False),
        ("openstack:///u-1", "aws:///u-1", False),
        ("gce://project/zone/vm", "gce://zone/vm", False),
        ("gce://vm", "gce://project/vm", False),
        ("x://", "x:///", False),
        ("nonsense", "NONSENSE", False),
        ("same nonsense", "same nonsense", True),
    ],
)
def test_spellings_of_one_provider_id(one: str, other: str, same: bool) -> None:
    assert same_provider_id(one, other) is same
    assert same_provider_id(other, one) is same
