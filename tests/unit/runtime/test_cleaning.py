"""The one cleaning: masked, redacted, escaped, cut; of lines and of tracebacks."""

from __future__ import annotations

import base64
import json
import urllib.parse
from collections import deque

import pytest

from cloudprovider.internal import cleaning
from cloudprovider.internal.cleaning import LONGEST, LONGEST_STACK, Cleaner, conceal, one_line
from cloudprovider.internal.configsecrets import conceal_config

SECRET = "s3cr3t/Välue+'\"x"
PLAIN = Cleaner()


def raised(error: BaseException) -> BaseException:
    """The same with a traceback."""
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - any exception is what the test asks for
        return caught


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.row("X4")
@pytest.mark.parametrize("sign", ["\n", "\r", "\x1b[31m", "\x00", "\x85", "\u2028", "\u202e", "\x07", "\x0b", "\ud800"])
def test_line_breaks_and_control_characters_are_escaped(sign: str) -> None:
    told = PLAIN.line(f"n1{sign}E1121 forged")
    assert told.isprintable()
    assert len(told.splitlines()) == 1
    assert told.startswith("n1\\")


def test_letters_of_other_languages_stay() -> None:
    assert PLAIN.line("Knoten größer als 3 节点") == "Knoten größer als 3 节点"


@pytest.mark.row("X4")
def test_a_text_is_cut_before_it_is_looked_at() -> None:
    told = PLAIN.line("x" * 5_000_000, 100)
    assert told == "x" * 97 + "..."
    assert PLAIN.line("x" * 100, 100) == "x" * 100
    assert len(PLAIN.line("\n" * 100, 100)) == 100


@pytest.mark.row("X2")
def test_a_cut_never_leaves_half_a_secret_to_be_seen() -> None:
    """Wherever a secret lies about the bound, or about the end of what is looked at, too little of
    it is left."""
    secret = "Zq8Wn3Kd5Rt7Vb2Xh6"
    cleaner = Cleaner([secret])
    parts = [secret[start : start + 4] for start in range(len(secret) - 3)]
    told = {at: cleaner.line("y" * at + secret + "y" * 4000, 100) for at in range(0, 1200, 7)}
    assert {at: one for at, one in told.items() if len(one) > 100 or any(part in one for part in parts)} == {}
    assert "Zq8" not in cleaner.line((secret + " ") * 300, 100)


def test_an_object_without_words_is_told_by_its_class() -> None:
    assert PLAIN.line(Silent()) == "(its message cannot be shown: RuntimeError)"


@pytest.mark.row("X2", "X5")
@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        repr(SECRET),
        "'" + SECRET.replace("'", "''") + "'",
        urllib.parse.quote(SECRET, safe=""),
        urllib.parse.quote_plus(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        base64.b64encode(f"me:{SECRET}".encode()).decode(),
        base64.b64encode(f"you:{SECRET}, ok".encode()).decode(),
        base64.b64encode(f"user:{SECRET}!".encode()).decode(),
    ],
)
def test_a_concealed_value_is_hidden_however_it_is_written(written: str) -> None:
    told = Cleaner([SECRET]).line(f"refused {written} here")
    assert told.startswith("refused ")
    assert told.endswith(" here")
    assert "***" in told
    assert not any(written[at : at + 12] in told for at in range(len(written) - 11))


def test_short_values_are_not_masked() -> None:
    assert Cleaner(["on", "3", "abc"]).line("abc on 3") == "abc on 3"


@pytest.mark.row("X4")
def test_no_line_of_a_traceback_can_pass_for_a_log_line_or_a_frame() -> None:
    error = raised(RuntimeError('lost\nE1121 00:00:00.000000 1 x.py:1] forged\n  File "forged.py", line 1\x1b[31m'))
    told = PLAIN.stack(error).split("\n")
    assert all(line.startswith("  ") and line.isprintable() for line in told)
    assert told[0] == "  Traceback (most recent call last):"
    assert told[-1].startswith("  RuntimeError: lost\\nE1121 ")
    assert not any("forged.py" in line for line in told[:-1])


@pytest.mark.row("X4")
def test_a_traceback_is_bounded_in_every_direction() -> None:
    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        raise ValueError("x" * 5_000_000)

    def chained(left: int) -> None:
        try:
            deep(200) if not left else chained(left - 1)
        except ValueError as error:
            raise ValueError("y" * 100_000) from error

    with pytest.raises(ValueError, match="yyy") as caught:
        chained(40)
    told = PLAIN.stack(caught.value)
    assert len(told) <= LONGEST_STACK + 20
    assert "earlier exceptions of this chain are left out" in told
    assert max(map(len, told.split("\n"))) <= LONGEST + 2
    assert told.endswith("(cut)")


def test_a_traceback_tells_causes_notes_and_members() -> None:
    inner = raised(KeyError("inner"))
    outer = RuntimeError("outer")
    outer.__cause__ = inner
    outer.add_note("a note\nof two lines")
    told = PLAIN.stack(raised(outer))
    assert told.index("KeyError: 'inner'") < told.index("direct cause") < told.index("RuntimeError: outer")
    assert "  a note\\nof two lines" in told
    group = PLAIN.stack(raised(ExceptionGroup("several", [ValueError("one"), ValueError("two")])))
    assert "ValueError: two" in group
    loop = RuntimeError("loop")
    loop.__context__ = inner
    inner.__context__ = loop
    assert PLAIN.stack(loop).count("RuntimeError: loop") == 1


@pytest.mark.row("X4")
def test_secrets_in_a_chain_are_hidden() -> None:
    error = RuntimeError("harmless")
    error.__cause__ = raised(ValueError(f"password: hunter2x and {SECRET}"))
    error.add_note("Bearer hunter2x")
    told = Cleaner([SECRET]).stack(error)
    assert "hunter2x" not in told
    assert "s3cr3t" not in told


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is concealed yet."""
    monkeypatch.setattr(cleaning, "_of_process", Cleaner())
    monkeypatch.setattr(cleaning, "_always", frozenset())
    monkeypatch.setattr(cleaning, "_loaded", deque(maxlen=3))


@pytest.mark.usefixtures("fresh")
def test_what_is_concealed_adds_up() -> None:
    conceal_config(b"password: firstSecret1")
    conceal_config(b"password: otherSecret2")
    conceal_config(None)
    assert one_line("firstSecret1 otherSecret2") == "*** ***"


@pytest.mark.usefixtures("fresh")
def test_of_secrets_that_rotate_the_latest_are_concealed() -> None:
    conceal(["alwaysSecret0"])
    for number in range(1, 6):
        conceal([f"rotatedSecret{number}"], loaded=True)
        conceal(["otherConfig9"], loaded=True)
    assert one_line("alwaysSecret0 rotatedSecret5 rotatedSecret4 otherConfig9") == "*** *** *** ***"
    assert "rotatedSecret" not in one_line("rotatedSecret5")
    assert cleaning.of_process().values == {"alwaysSecret0", "rotatedSecret4", "rotatedSecret5", "otherConfig9"}
