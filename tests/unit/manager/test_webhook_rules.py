"""Which permissions of the webhooks are asked about: those that their certificate needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from cloudprovider import Interface
from controllers.app import Manager, ManagerOptions, Options
from controllers.registration.entry import Context
from controllers.runtime.api import ClientBuilder
from controllers.webhooks import Handler
from controllers.webhooks.options import WebhookOptions
from controllers.webhooks.rbac_rules import KINDS
from controllers.webhooks.webhook import WebhookEntry
from tests.support.https import free_port
from tests.support.pki import Authority
from tests.unit.webhooks.support import WEBHOOK, Told


class Tiny(Interface):
    def provider_name(self) -> str:
        return "tiny"


@pytest.fixture
def clients(kubeconfig: str) -> Iterator[ClientBuilder]:
    with ClientBuilder.from_options(kubeconfig) as made:
        yield made


def asked_about(clients: ClientBuilder, handler: Handler | None, **options: Any) -> set[str]:
    """What a manager with this webhook asks about, beside the leader election."""
    given = WebhookOptions(webhooks=("*",), bind_address="127.0.0.1", secure_port=free_port(), **options)
    entry = WebhookEntry(webhook=WEBHOOK, construct=lambda _context: handler)
    made = Manager(
        Options(ManagerOptions(cloud_provider="tiny"), {WebhookOptions: given}), Tiny(), clients, webhooks=[entry]
    )
    try:
        made._serve_webhooks(cast(Context, None))
        return {rule.resource for rule in made._rules([])} - {"leases", "events"}
    finally:
        made._parts.stop()


def test_a_certificate_that_all_replicas_share_needs_the_secret_and_one_in_a_folder_does_not(
    clients: ClientBuilder, tmp_path: Path
) -> None:
    assert asked_about(clients, Told()) == {"secrets", *KINDS}
    assert asked_about(clients, Told(), cert_dir=str(tmp_path / "certs")) == {*KINDS}
    assert asked_about(clients, None) == set(), "a webhook that has nothing to do"


def test_what_others_have_signed_needs_nothing(clients: ClientBuilder, tmp_path: Path) -> None:
    certificate, key = Authority().server_files(tmp_path)
    given = {"tls_cert_file": str(certificate), "tls_private_key_file": str(key)}
    assert asked_about(clients, Told(), **given) == set()
    for file, suffix in ((certificate, "crt"), (key, "key")):
        file.rename(tmp_path / f"cloud-controller-manager-webhook.{suffix}")
    assert asked_about(clients, Told(), cert_dir=str(tmp_path)) == set()
