"""Masking: what of a config file may never appear in a message, whatever the file's syntax."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider import CloudConfig
from cloudprovider.internal.cleaning import Mask
from cloudprovider.internal.configsecrets import (
    MaskedCause,
    config_values,
    is_file_name,
    safe_cause,
    secret_values,
)
from cloudprovider.loading.diagnostics import error_text, file_names_in, hidden_values

SECRET = "s3cr3t-Value"
KEY = "MIIEvQIBADANBgkqhkiG9w0B"
SYNTAXES = [
    f"password: {SECRET}",
    f"[global]\npassword = {SECRET}\n",
    f"PASSWORD='{SECRET}'",
    json.dumps({"auth": {"user": "me", "password": SECRET}}),
    f"url: https://me:{SECRET}@cloud.example/v3",
    f"- {SECRET}\n- other",
    SECRET,
    f'password = "{SECRET}" # a comment',
    f"auth:\n  - password: {SECRET}",
]


def mask(text: str, values: frozenset[str]) -> str:
    return Mask(values).apply(text)


@pytest.mark.parametrize("config", SYNTAXES)
def test_a_secret_is_masked_whatever_the_syntax(config: str) -> None:
    values = config_values(config.encode())
    told = mask(f"cannot log in with {SECRET!r} (prefix-{SECRET}), nor {SECRET[2:]}", values)
    assert SECRET not in told
    assert SECRET[2:] not in told
    assert told.startswith("cannot log in with '***'")


@pytest.mark.parametrize(
    ("config", "text", "told"),
    [
        (
            b"password: abcdef\nauth-url: https://x\n[section]\n",
            "password is missing, auth-url too",
            "password is missing, auth-url too",
        ),
        (b"mode: main", "mode main: the domain remains", "mode ***: the domain remains"),
        (b"retries: 3\nlang: en", "retry 3 times on an error", "retry 3 times on an error"),
        (b"token: eyJhbGciOiJSUzI1NiIsImtpZCI6", "near ...RSzI1, ...JSUzI1NiIs...", "near ...RSzI1, ...***..."),
        (b"\xff\xfe key=abcdefgh", "abcdefgh", "***"),
    ],
    ids=["names of settings stay", "a short word alone", "tiny values stay", "a piece of a long secret", "no text"],
)
def test_what_is_masked(config: bytes, text: str, told: str) -> None:
    assert mask(text, config_values(config)) == told


def test_the_last_line_of_a_key_is_no_setting() -> None:
    line = base64.b64encode(b"key material of a private kind!").decode()
    assert line.endswith("=")
    assert line not in mask(f"bad: {line}", config_values(f"-----BEGIN KEY-----\n{line}\n-----END".encode()))


@given(
    secret=st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=8, max_size=40),
    before=st.text(max_size=20),
    after=st.text(max_size=20),
    template=st.sampled_from(["password: {}", '{{"password": "{}"}}', "password={}", "{}"]),
)
def test_no_long_secret_survives(secret: str, before: str, after: str, template: str) -> None:
    values = config_values(template.format(secret).encode())
    assert secret not in mask(before + secret + after, values).replace("***", "\0")


@given(text=st.text(), config=st.binary(max_size=60))
def test_what_is_not_masked_stays_as_it_was(text: str, config: bytes) -> None:
    rest = iter(text)
    kept = mask(text, config_values(config)).replace("***", "") if "*" not in text else ""
    assert all(letter in rest for letter in kept)  # in the same order
    assert mask(text, frozenset()) == text


def test_safe_cause_keeps_the_traceback_but_not_the_text() -> None:
    with pytest.raises(ValueError, match="cannot parse") as caught:
        raise ValueError(f"cannot parse {SECRET}")
    error = caught.value
    told, cause = safe_cause(error, SYNTAXES[0].encode())
    assert told == "ValueError: cannot parse ***"
    assert isinstance(cause, MaskedCause)
    assert str(cause) == told
    assert cause.__traceback__ is error.__traceback__ is not None
    assert safe_cause(error, None) == (f"ValueError: cannot parse {SECRET}", error)
    assert safe_cause(error, b"region: north") == (f"ValueError: cannot parse {SECRET}", error)


def test_safe_cause_looks_at_notes_and_at_what_an_error_is_chained_to() -> None:
    hidden = ValueError("harmless")
    hidden.__cause__ = KeyError(SECRET)
    noted = ValueError("harmless")
    noted.add_note(f"with {SECRET}")
    for error in (hidden, noted):
        told, cause = safe_cause(error, SYNTAXES[0].encode())
        assert told == "ValueError: harmless"
        assert isinstance(cause, MaskedCause)


@given(st.text("aZ0/~._-", min_size=8, max_size=20), st.text("ab/.", max_size=6), st.text("ab/.", max_size=6))
def test_the_name_of_a_file_is_not_shown_where_a_secret_is_in_it(secret: str, before: str, after: str) -> None:
    name = f"/{before}{secret}{after}"
    config = CloudConfig("acme.yaml", json.dumps({"password": secret, "path": name}, indent=1).encode())
    error = FileNotFoundError(2, "No such file or directory", name)
    told, cause = safe_cause(error, config.data, hidden_values(error), file_names_in(error, config))
    for said in (told, str(cause), *error_text(error, config)):
        assert secret not in said


def test_what_is_the_name_of_a_file_for_certain() -> None:
    names = ["/etc/acme/ca.pem", "~/.acme/token", "../keys/id_ed25519", "ca.pem", "/opt/MyCloud"]
    others = ["hunter2", "//a:b@nas/c", "/v1?key=a", "/bin/login -p x", "/aB3/c", "eyJhbGciOi.J9", "MIIEvQIBADAN/BKcw"]
    assert [text for text in [*names, *others] if is_file_name(text)] == names


def test_words_of_comments_are_not_taken_for_secrets() -> None:
    data = b"# what max_batch means\nname: web   # the machine's name, an integer\npassword: hunter2#x\n"
    assert mask("max_batch should be a valid integer", config_values(data)) == "max_batch should be a valid integer"
    assert "hunter2" not in mask("bad value hunter2#x", config_values(data))


class Text(str):
    """A text that counts the pieces that are taken from it."""

    pieces = 0

    def __getitem__(self, index: Any) -> str:
        Text.pieces += 1
        return super().__getitem__(index)


@pytest.mark.row("X5")
def test_masking_looks_at_each_place_a_bounded_number_of_times() -> None:
    """Neither more values nor a longer text costs more looks per letter; every length of a short
    value is one look."""
    few = Mask(["aaaaaaaaab", "ab12"])
    many = Mask(
        [f"{number:08}aaaaaaaaaaaaaaaaaaaa" for number in range(500)] + [f"{number:04}" for number in range(500)]
    )
    for hidden in (few, many):
        for length in (10_000, 40_000):
            Text.pieces = 0
            hidden.apply(Text("a" * length))
            assert Text.pieces <= 2 * length + 10


@pytest.mark.row("X2", "X5")
@pytest.mark.parametrize(
    ("config", "secret"),
    [
        (f"password: {SECRET}", SECRET),
        (f"[global]\npassword = {SECRET}\n[other]\nregion = north-1\n", SECRET),
        (f"export OS_PASSWORD='{SECRET}'", SECRET),
        (json.dumps({"auth": {"user": "me", "clientSecret": SECRET}, "region": "north-1"}), SECRET),
        (f"url: https://me:{SECRET}@cloud.example/v3", SECRET),
        (f"dsn = postgres://me:{SECRET}@db/ccm", SECRET),
        (f"tokens:\n- {SECRET}\n- other", SECRET),
        (SECRET, SECRET),
        (f"anything: {SECRET}", SECRET),
        ("apiToken: correcthorsebatterystaple", "correcthorsebatterystaple"),
        ("key: correcthorse", "correcthorse"),
        ('{"auth": {"key": "correcthorse"}}', "correcthorse"),
        ("cloud.keys = correcthorse", "correcthorse"),
        ("consumer_key=correcthorse", "correcthorse"),
        ("applicationKey: correcthorse", "correcthorse"),
        ("session-key: correcthorse", "correcthorse"),
        ("\ufeffpassword=correcthorse", "correcthorse"),
        ('password: "two words"', "two words"),
        ("password: two words", "two words"),
        ("password: 'it''s'", "it's"),
        ('{"password": "a\\"b\\u00e4cd"}', 'a"bäcd'),
        ('{"password": "one,two:3"}', "one,two:3"),
        ("password: one,two: 3", "one,two: 3"),
        ("hcloud: k8Zq1xWv9Lm3Np5Rt7Ys", "k8Zq1xWv9Lm3Np5Rt7Ys"),
        (f"-----BEGIN PRIVATE KEY-----\n{KEY}\n-----END PRIVATE KEY-----", KEY),
        (f"key: |\n  -----BEGIN PRIVATE KEY-----\n  {KEY}\n  -----END PRIVATE KEY-----", KEY),
    ],
)  # fmt: skip
def test_secrets_of_a_config_are_found_by_name_and_by_looks(config: str, secret: str) -> None:
    assert secret not in Mask(secret_values(config.encode()), window=12).apply(f"refused '{secret}'")


@pytest.mark.row("X5")
def test_what_a_config_says_about_the_cloud_stays_readable() -> None:
    config = b"""
# the cloud of the north
[Global]
region = eu-central-1
auth-url = https://cloud.example:5000/v3
tenant-id = 9b2c3f5e-0d8c-4a0e-9a6b-6c8f2f3d1e77
username = cloud-controller
use-clouds = false
[LoadBalancer]
subnet-id = 7b2c3f5e-0d8c-4a0e-9a6b-6c8f2f3d1e77
flavor = m5.large
lb-provider: octavia
floating-network: 5b2c3f5e-0d8c-4a0e-9a6b-6c8f2f3d1e77
token-url: https://cloud.example/Token1
secret-name: cloud-Config1
password-file: /etc/Secret1/password
client-key-file: /etc/Secret1/key
label_key: example.com/zone
nodes: [worker-1, worker-2]
max_tokens: 4096
timeout: 30s
"""
    assert secret_values(config) == frozenset()


@given(config=st.binary(max_size=200))
def test_any_bytes_are_a_config(config: bytes) -> None:
    assert all(len(value) >= 4 for value in secret_values(config))
