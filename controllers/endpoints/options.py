"""What can be set of HTTPS serving, in the flags of the Go cloud-controller-manager.

Names, sections and defaults are those of k8s.io/apiserver's SecureServingOptions,
DelegatingAuthenticationOptions and DelegatingAuthorizationOptions.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import attrs

from controllers.httpserver.ciphers import check_ciphers
from controllers.options import (
    BOOL,
    DURATION,
    INT,
    LIST,
    PATH,
    STRING,
    between,
    not_negative,
    one_of,
    option,
)

_SERVING = "secure serving"
_AUTHENTICATION = "authentication"
_AUTHORIZATION = "authorization"


def check_address(value: str) -> str | None:
    """A check for an address to listen on."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return "must be an IP address, such as 0.0.0.0, 127.0.0.1 or ::"
    return None


def _paths(value: Sequence[str]) -> str | None:
    for path in value:
        if "*" in path[:-1]:
            return f"{path!r}: only a * at the end is allowed"
    return None


def pair_problem(cert_file: str, key_file: str, prefix: str = "") -> str | None:
    """What is wrong with these two flags together, or None."""
    if bool(cert_file) != bool(key_file):
        given, missing = ("tls-cert-file", "tls-private-key-file")[:: 1 if cert_file else -1]
        return f"--{prefix}{given}: needs --{prefix}{missing} too"
    return None


@attrs.frozen(kw_only=True)
class ServingOptions:
    """HTTPS on `secure_port`, and who may see what there; in seconds. Raises ValueError."""

    bind_address: str = option(
        "0.0.0.0",
        STRING,
        "bind-address",
        _SERVING,
        "IP address on which --secure-port listens. 0.0.0.0 and :: mean every address, of IPv4 and IPv6.",
        check=check_address,
        configz="Generic.Address",
    )
    secure_port: int = option(
        10258,
        INT,
        "secure-port",
        _SERVING,
        "Port of the HTTPS endpoints: health, metrics, configuration and status, with authentication and "
        "authorization. 0: no HTTPS.",
        check=between(0, 65535),
    )
    cert_dir: str = option(
        "",
        PATH,
        "cert-dir",
        _SERVING,
        "Folder of cloud-controller-manager.crt and .key. If they are missing, a self-signed certificate is made and "
        "written there, and renewed. Empty: it is kept in memory. Not used with --tls-cert-file.",
    )
    permit_port_sharing: bool = option(
        False,
        BOOL,
        "permit-port-sharing",
        _SERVING,
        "Let another process listen on the same address and port (SO_REUSEPORT), if it permits that too: during an "
        "update, two managers of one machine.",
    )
    tls_cert_file: str = option(
        "",
        PATH,
        "tls-cert-file",
        _SERVING,
        "File with the certificate for HTTPS in PEM, followed by intermediate ones. Read again when it changes. "
        "Empty: a self-signed certificate.",
    )
    tls_private_key_file: str = option(
        "",
        PATH,
        "tls-private-key-file",
        _SERVING,
        "File with the private key of --tls-cert-file, in PEM, without a passphrase.",
    )
    tls_min_version: str = option(
        "",
        STRING,
        "tls-min-version",
        _SERVING,
        "Lowest version of TLS: VersionTLS12 (also if empty) or VersionTLS13. VersionTLS10 and VersionTLS11 are taken "
        "for VersionTLS12.",
        check=one_of("", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"),
    )
    tls_cipher_suites: tuple[str, ...] = option(
        (),
        LIST,
        "tls-cipher-suites",
        _SERVING,
        "Cipher suites of TLS 1.2, by Go's names. Those of TLS 1.3 are always offered; if no others are named, TLS 1.2 "
        "is not spoken. Empty: the TLS library's own choice.",
        check=check_ciphers,
    )
    authentication_kubeconfig: str = option(
        "",
        PATH,
        "authentication-kubeconfig",
        _AUTHENTICATION,
        "Kubeconfig of the API server that is asked whose token it is (create on tokenreviews). Empty: the one that "
        "the manager works with.",
    )
    authentication_skip_lookup: bool = option(
        False,
        BOOL,
        "authentication-skip-lookup",
        _AUTHENTICATION,
        "Do not read the CA of client certificates from the ConfigMap extension-apiserver-authentication in "
        "kube-system. Not read either with --client-ca-file.",
    )
    authentication_token_webhook_cache_ttl: float = option(
        10.0,
        DURATION,
        "authentication-token-webhook-cache-ttl",
        _AUTHENTICATION,
        "How long the answer about a token is remembered.",
        check=not_negative,
    )
    authentication_tolerate_lookup_failure: bool = option(
        False,
        BOOL,
        "authentication-tolerate-lookup-failure",
        _AUTHENTICATION,
        "Do not warn where that ConfigMap cannot be read. In either case the manager runs, tries again, and takes "
        "tokens only. Go's manager ends without this flag.",
    )
    client_ca_file: str = option(
        "",
        PATH,
        "client-ca-file",
        _AUTHENTICATION,
        "File with the CA, in PEM, of client certificates; their common name is the user, their organizations the "
        "groups. Read again when it changes.",
    )
    authorization_kubeconfig: str = option(
        "",
        PATH,
        "authorization-kubeconfig",
        _AUTHORIZATION,
        "Kubeconfig of the API server that is asked what a user may read here (create on subjectaccessreviews). Empty: "
        "the one that the manager works with.",
    )
    authorization_always_allow_paths: tuple[str, ...] = option(
        ("/healthz", "/readyz", "/livez"),
        LIST,
        "authorization-always-allow-paths",
        _AUTHORIZATION,
        "Paths that everybody may read, with or without the / at their beginning. A * at the end stands for any rest.",
        check=_paths,
    )
    authorization_webhook_cache_authorized_ttl: float = option(
        10.0,
        DURATION,
        "authorization-webhook-cache-authorized-ttl",
        _AUTHORIZATION,
        "How long it is remembered that a user may read a path.",
        check=not_negative,
    )
    authorization_webhook_cache_unauthorized_ttl: float = option(
        10.0,
        DURATION,
        "authorization-webhook-cache-unauthorized-ttl",
        _AUTHORIZATION,
        "How long it is remembered that a user may not read a path.",
        check=not_negative,
    )
    profiling: bool = option(
        True,
        BOOL,
        "profiling",
        "debugging",
        "Serve the stacks of all threads at /debug/threads, and take another verbosity of the log (a PUT of "
        "/debug/flags/v), for users who may do that. Go's profiles do not exist here.",
        configz="Generic.Debugging.enableProfiling",
    )

    def __attrs_post_init__(self) -> None:
        problem = pair_problem(self.tls_cert_file, self.tls_private_key_file)
        if problem:
            raise ValueError(problem)
