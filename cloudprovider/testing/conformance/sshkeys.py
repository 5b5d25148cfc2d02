"""Scenarios K: a public key is installed on every machine, again and again, and shown nowhere."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from kubernetes.client.models.v1_node import V1Node

from cloudprovider.errors import CloudProviderError
from cloudprovider.sshkeys import SSHKeys
from cloudprovider.testing.conformance.base import ConformanceBase
from cloudprovider.testing.conformance.bench import name_of
from cloudprovider.testing.conformance.calls import TextLog, attempt, shown, unwell
from cloudprovider.testing.conformance.features import Feature, extension_of
from cloudprovider.testing.conformance.registry import scenario
from cloudprovider.testing.conformance.trial import Trial

_KEYS = Feature.SSH_KEYS
_MACHINES = ("create_machine", "ssh_keys")
_USER = "conformance"
_METHOD = "add_ssh_key_to_all_instances"
# Their private halves were thrown away when they were made.
_ONE = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBlISmtQsAHDS11OZIBeazeLq3wQz8gF3N444y2SzEGP"
_TWO = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBpOsXj1EHZWLU7V0eW87L/CeS1Cyl/ZDRM7gXZCXbsF"
_LEAK = ("IBlISmtQsAHD", "b3BlbnNzaC1r")  # of the first key, and of the private one below
_JUNK = (
    b"",
    b"ssh-ed25519",
    _ONE[:48],
    b"ssh-rsa " + _ONE.partition(b" ")[2],
    b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU=\n-----END OPENSSH PRIVATE KEY-----\n",
)


def _keys(trial: Trial) -> SSHKeys:
    found: SSHKeys | None = extension_of(trial.provider, SSHKeys)
    assert found is not None, "neither instances_v2() nor instances_batch() returns an SSHKeys"
    return found


def _installed(trial: Trial, node: V1Node, user: str = _USER) -> list[bytes]:
    """The keys of a user on a machine: type and base64."""
    found: Collection[bytes] = trial.lab.ssh_keys(node, user)
    return [b" ".join(line.split()[:2]) for line in found]


def _check(trial: Trial, node: V1Node, key: bytes, user: str = _USER) -> None:
    def look() -> None:
        count = _installed(trial, node, user).count(key)
        assert count == 1, f"the machine {name_of(node)} has the key of {user} {count} times, not once"

    trial.eventually(look)


def _add(trial: Trial, key: bytes, user: str = _USER) -> None:
    outcome = attempt(partial(_keys(trial).add_ssh_key_to_all_instances, user, key))
    assert outcome.error is None, f"{_METHOD} raised {shown(outcome.error)}"


class SSHKeyScenarios(ConformanceBase):
    """`SSHKeys`."""

    @scenario("K1", _KEYS)
    def test_k1_it_may_be_repeated(self, trial: Trial) -> None:
        """A key may be installed again."""
        # The controller installs every key again after each restart.
        for _ in range(2):
            _add(trial, _ONE)

    @scenario("K2", _KEYS, hooks=_MACHINES)
    def test_k2_every_machine_has_it_once(self, trial: Trial) -> None:
        """Every machine has the key, once."""
        nodes = trial.machines(2)
        _add(trial, _ONE)
        for node in nodes:
            _check(trial, node, _ONE)

    @scenario("K3", _KEYS, hooks=_MACHINES)
    def test_k3_other_keys_stay(self, trial: Trial) -> None:
        """A second key, and the key of another user, stand beside the first one."""
        (node,) = trial.machines(1)
        _add(trial, _ONE)
        _add(trial, _TWO)
        _add(trial, _TWO, f"{_USER}-2")
        _check(trial, node, _ONE)
        _check(trial, node, _TWO)
        _check(trial, node, _TWO, f"{_USER}-2")

    @scenario("K4", _KEYS, hooks=_MACHINES)
    def test_k4_a_new_machine_gets_it(self, trial: Trial) -> None:
        """A machine that was made after the first call has the key after the next one."""
        _add(trial, _ONE)
        node = trial.new_machine()
        _add(trial, _ONE)
        _check(trial, node, _ONE)

    @scenario("K5", _KEYS)
    def test_k5_junk_is_refused(self, trial: Trial) -> None:
        """What is no public key (nothing, a damaged one, one of another type, a private one) is
        refused by an error."""
        # Length alone in the message: a private key is among them, and reports are published.
        for junk in _JUNK:
            outcome = attempt(partial(_keys(trial).add_ssh_key_to_all_instances, _USER, junk))
            said = shown(outcome.error) if outcome.error is not None else "returned"
            assert isinstance(outcome.error, CloudProviderError), (
                f"{_METHOD} {said} for {len(junk)} bytes that are no public key; a CloudProviderError is due"
            )

    @scenario("K6", _KEYS, hooks=("outage",))
    def test_k6_an_outage_is_an_error(self, trial: Trial) -> None:
        """While the cloud cannot answer, the method raises."""
        with trial.outage():
            unwell(_METHOD, partial(_keys(trial).add_ssh_key_to_all_instances, _USER, _ONE))

    @scenario("K7", _KEYS, hooks=("hang",))
    def test_k7_a_hung_cloud_costs_the_deadline(self, trial: Trial) -> None:
        """While the cloud hangs, a call ends soon after its deadline."""
        trial.in_a_hang(partial(_keys(trial).add_ssh_key_to_all_instances, _USER, _ONE))

    @scenario("K8", _KEYS)
    def test_k8_no_key_is_shown(self, trial: Trial) -> None:
        """No part of a key, public or not, is logged or part of an error."""
        with TextLog() as log:
            for data in (_ONE, *_JUNK):
                outcome = attempt(partial(_keys(trial).add_ssh_key_to_all_instances, _USER, data))
                if outcome.error is not None:
                    log.lines.append(shown(outcome.error))
        for line in log.lines:
            assert not any(piece in line for piece in _LEAK), "a log line or an error shows a part of a key"
