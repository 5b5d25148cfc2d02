"""What can be set about webhooks, in the flags of the Go cloud-controller-manager.

Names, sections and defaults are those of k8s.io/cloud-provider options/webhook.go; the webhooks'
own options are classes of their own.
"""

from __future__ import annotations

import attrs

from controllers.endpoints.options import check_address, pair_problem
from controllers.httpserver.ciphers import check_ciphers
from controllers.options import INT, IP, LIST, PATH, STRING, between, one_of, option

_WHICH = "webhook"
_SERVING = "webhook serving"


@attrs.frozen(kw_only=True)
class WebhookOptions:
    """Which webhooks are served, and where. Raises ValueError naming the flag."""

    webhooks: tuple[str, ...] = option(
        (),
        LIST,
        "webhooks",
        _WHICH,
        "Admission webhooks to serve: '*' means all that are on by default, 'name' adds one, '-name' leaves one out. "
        "Empty: none.",
        configz="Webhook.Webhooks",
    )
    bind_address: str = option(
        "0.0.0.0",
        IP,
        "webhook-bind-address",
        _SERVING,
        "IP address on which --webhook-secure-port listens. 0.0.0.0 and :: mean every address, of IPv4 and IPv6.",
        check=check_address,
    )
    secure_port: int = option(
        10260,
        INT,
        "webhook-secure-port",
        _SERVING,
        "Port of the HTTPS server of the webhooks, which runs on every replica. 0: no webhooks.",
        check=between(0, 65535),
    )
    cert_dir: str = option(
        "",
        PATH,
        "webhook-cert-dir",
        _SERVING,
        "Folder of cloud-controller-manager-webhook.crt and .key. If they are missing, a self-signed certificate is "
        "made and written there, and renewed. Empty: a self-signed certificate that all replicas share, in the Secret "
        "kube-system/cloud-controller-manager-webhook. Not used with --webhook-tls-cert-file.",
    )
    tls_cert_file: str = option(
        "",
        PATH,
        "webhook-tls-cert-file",
        _SERVING,
        "File with the webhook server's certificate in PEM, followed by intermediate ones. Read again when it changes. "
        "You write its CA into the webhook configuration yourself, or have cert-manager do it.",
    )
    tls_private_key_file: str = option(
        "",
        PATH,
        "webhook-tls-private-key-file",
        _SERVING,
        "File with the private key of --webhook-tls-cert-file, in PEM, without a passphrase.",
    )
    tls_min_version: str = option(
        "",
        STRING,
        "webhook-tls-min-version",
        _SERVING,
        "Lowest version of TLS of the webhook server, as --tls-min-version.",
        check=one_of("", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"),
    )

    client_ca_file: str = option(
        "",
        PATH,
        "webhook-client-ca-file",
        _SERVING,
        "File with the CA, in PEM, of the certificate that the API server shows to webhooks (its "
        "--admission-control-config-file names a kubeconfig with one). Whoever shows none is answered with 401. Read "
        "again when it changes. Empty: everybody who reaches the port may send reviews. Not in Go.",
    )
    tls_cipher_suites: tuple[str, ...] = option(
        (),
        LIST,
        "webhook-tls-cipher-suites",
        _SERVING,
        "Cipher suites of the webhook server, as --tls-cipher-suites.",
        check=check_ciphers,
    )

    def __attrs_post_init__(self) -> None:
        problem = pair_problem(self.tls_cert_file, self.tls_private_key_file, prefix="webhook-")
        if problem:
            raise ValueError(problem)
