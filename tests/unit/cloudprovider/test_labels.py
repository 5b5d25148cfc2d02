"""Labels: syntax as the API server has it, pairs of stable and deprecated keys, zones of nodes."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models import V1Node, V1ObjectMeta

from cloudprovider.helpers import (
    LABEL_PAIRS,
    instance_labels,
    is_kubernetes_label,
    label_key_problems,
    label_value,
    label_value_problems,
    missing_twins,
)

ALNUM = string.ascii_letters + string.digits
NAMES = st.builds(
    lambda first, middle, last: first + middle + last,
    st.sampled_from(ALNUM),
    st.text(ALNUM + "-_.", max_size=61),
    st.sampled_from(ALNUM),
) | st.sampled_from(list(ALNUM))


def node(**labels: str) -> V1Node:
    return V1Node(metadata=V1ObjectMeta(labels={key.replace("__", "/"): value for key, value in labels.items()}))


# Syntax. The cases are those of k8s.io/apimachinery pkg/api/validate/content/kube_test.go.

GOOD_KEYS = [
    "simple",
    "now-with-dashes",
    "1-starts-with-num",
    "1234",
    "simple/simple",
    "now-with-dashes/simple",
    "now-with-dashes/now-with-dashes",
    "now.with.dots/simple",
    "now-with.dashes-and.dots/simple",
    "1-num.2-num/3-num",
    "1234/5678",
    "1.2.3.4/5678",
    "Uppercase_Is_OK_123",
    "example.com/Uppercase_Is_OK_123",
    "requests.storage-foo",
    "a" * 63,
    "a" * 253 + "/" + "b" * 63,
]
BAD_KEYS = [
    "nospecialchars%^=@",
    "cantendwithadash-",
    "-cantstartwithadash-",
    "only/one/slash",
    "Example.com/abc",
    "example_com/abc",
    "example.com/",
    "/simple",
    "a" * 64,
    "a" * 254 + "/abc",
    "abc/" + "a" * 64,
    "",
    "/",
    "a\n",
    "a.com\n/b",
    "ä",
    "a..b/c",
    "-a/b",
    "a-/b",
]
GOOD_VALUES = ["simple", "now-with-dashes", "1-starts-with-num", "end-with-num-1", "1234", "a" * 63, ""]
BAD_VALUES = [
    "nospecialchars%^=@",
    "Tama-nui-te-rā.is.Māori.sun",
    r"\backslashes\are\bad",
    "-starts-with-dash",
    "ends-with-dash-",
    ".starts.with.dot",
    "ends.with.dot.",
    "a" * 64,
    "only/one",
    "a\n",
    " ",
]


def test_good_keys_and_values_have_no_problems_and_bad_ones_are_told_with_what_was_written() -> None:
    assert [key for key in GOOD_KEYS if label_key_problems(key)] == []
    assert [value for value in GOOD_VALUES if label_value_problems(value)] == []
    for key in BAD_KEYS:
        problems = label_key_problems(key)
        assert problems, key
        assert all(repr(key) in problem for problem in problems)
    for value in BAD_VALUES:
        (problem,) = label_value_problems(value)
        assert repr(value) in problem


@given(NAMES)
def test_every_well_formed_name_is_a_key_and_a_value(name: str) -> None:
    assert label_key_problems(name) == label_value_problems(name) == label_key_problems(f"a.b-c.d/{name}") == ()


@given(NAMES, st.characters(exclude_characters=ALNUM + "-_./"), st.integers(0, 63))
def test_one_wrong_character_anywhere_is_noticed(name: str, wrong: str, at: int) -> None:
    broken = name[:at] + wrong + name[at:]
    assert label_value_problems(broken)
    assert label_key_problems(broken)


@given(NAMES, st.sampled_from("-_."), st.booleans())
def test_a_separator_at_an_end_is_noticed(name: str, separator: str, front: bool) -> None:
    broken = separator + name if front else name + separator
    assert label_value_problems(broken)
    assert label_key_problems(f"a.b/{broken}")


# Label values of any text


@pytest.mark.row("N35")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Dell-PowerEdge\u2122-R660-DX293", "Dell-PowerEdge--R660-DX293"),
        ("Default Group", "Default-Group"),
        ("PHX:AD 1", "PHX-AD-1"),
        (" (eu) ", "eu"),
        ("\u6771\u4eac", ""),
        ("", ""),
        (f"{'x' * 61} y", f"{'x' * 61}-y"),
        # Pinned: nodes carry these values, and a new version may not give others.
        (f"{'x' * 62} y", f"{'x' * 54}-d5f5b87a"),
        (f"{'x' * 53}, {'y' * 20}", f"{'x' * 53}-ce62a790"),
    ],
)
def test_a_text_becomes_a_label_value(text: str, value: str) -> None:
    assert label_value(text) == value


@pytest.mark.row("N35")
@given(st.one_of(st.text(), st.text(alphabet="aZ9-_. /", max_size=80), NAMES))
def test_whatever_the_text_the_api_server_takes_its_label_value(text: str) -> None:
    value = label_value(text)
    assert label_value_problems(value) == ()
    assert label_value(value) == value
    assert bool(value) == any(character in ALNUM for character in text)
    if not label_value_problems(text):
        assert value == text


@pytest.mark.row("N35")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("north-1", "north-1"),
        ("Rack 1", "Rack-1-65bcebbb"),
        ("Rack/1", "Rack-1-b508dfaf"),
        ("\u6771\u4eac", "130016b2"),
        ("", ""),
    ],
)
def test_other_texts_give_other_values_where_that_is_asked_for(text: str, value: str) -> None:
    assert label_value(text, unique=True) == value


@pytest.mark.row("N35")
@given(st.lists(st.text(alphabet="aB1-_. /\u6771", max_size=80), min_size=2, max_size=2, unique=True))
def test_no_two_texts_have_one_value_where_that_is_asked_for(texts: list[str]) -> None:
    values = [label_value(text, unique=True) for text in texts]
    assert values[0] != values[1]
    for value in values:
        assert label_value_problems(value) == ()
        assert label_value(value, unique=True) == label_value(value) == value


@pytest.mark.row("N35")
@given(st.text(alphabet="aB1-_. /", min_size=64, max_size=80), st.text(alphabet="aB1", min_size=1, max_size=3))
def test_long_texts_that_begin_alike_are_told_apart(text: str, end: str) -> None:
    text = f"a{text.replace(' ', 'a')}"
    if len(label_value(text)) == 63:
        assert label_value(text) != label_value(text + end)


# Namespaces


def test_which_labels_are_of_kubernetes() -> None:
    ours = ["kubernetes.io/a", "k8s.io/a", "node.kubernetes.io/a", "x.y.k8s.io/a", "node-role.kubernetes.io/worker"]
    others = [
        "a",
        "kubernetes.io",
        "notkubernetes.io/a",
        "kubernetes.io.example/a",
        "example.com/kubernetes.io",
        "xk8s.io/a",
    ]
    assert [key for key in [*ours, *others] if is_kubernetes_label(key)] == ours


# Pairs


def test_an_instance_is_labelled_under_both_keys() -> None:
    assert instance_labels("m5", "eu-1a", "eu-1") == {
        "node.kubernetes.io/instance-type": "m5",
        "beta.kubernetes.io/instance-type": "m5",
        "topology.kubernetes.io/zone": "eu-1a",
        "failure-domain.beta.kubernetes.io/zone": "eu-1a",
        "topology.kubernetes.io/region": "eu-1",
        "failure-domain.beta.kubernetes.io/region": "eu-1",
    }
    assert instance_labels(zone="z") == {
        "topology.kubernetes.io/zone": "z",
        "failure-domain.beta.kubernetes.io/zone": "z",
    }
    assert instance_labels() == {}


@pytest.mark.row("N11")
@pytest.mark.parametrize(("stable", "beta"), LABEL_PAIRS)
def test_the_stable_key_wins(stable: str, beta: str) -> None:
    assert missing_twins({stable: "new", beta: "old"}) == {beta: "new"}
    assert missing_twins({stable: "new"}) == {beta: "new"}
    assert missing_twins({beta: "old"}) == {stable: "old"}
    assert missing_twins({stable: "", beta: "old"}) == {beta: ""}
    assert missing_twins({stable: "same", beta: "same"}) == {}
    assert missing_twins({"other": "x"}) == {}


@pytest.mark.row("N11")
@given(
    st.dictionaries(st.sampled_from([key for pair in LABEL_PAIRS for key in pair] + ["other"]), st.sampled_from("ab"))
)
def test_pairs_agree_once_the_changes_are_made(labels: dict[str, str]) -> None:
    after = {**labels, **missing_twins(labels)}
    assert missing_twins(after) == {}
    for stable, beta in LABEL_PAIRS:
        assert after.get(stable) == after.get(beta) == labels.get(stable, labels.get(beta))
