"""client-go's rules for kubeconfigs, one row each: what is refused, what is sent, what is not run.

The facts: validation.go, client_config.go and api/v1/conversion.go of client-go's tools/clientcmd,
transport/round_trippers.go, and plugin/pkg/client/auth/exec."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controllers.runtime.api import ClientBuilder, ClientConfigError, ClientSettings, CredentialsUnavailable, kubeconfig
from controllers.runtime.api.execplugin import ExecPlugin
from tests.unit.runtime.kubeconfigs import EXEC, NO_ENV, Config
from tests.unit.runtime.loopback import Authority, Server

Edit = Callable[[Config], object]

pytestmark = pytest.mark.row("K31")


def user(**fields: object) -> Edit:
    """The user is this."""
    return lambda config: config["users"][0].update(user={k.replace("_", "-"): v for k, v in fields.items()})


def plugin(**fields: object) -> Edit:
    """The user is an exec plugin with these fields; None: without that one."""
    given = {**EXEC, "command": "true", **fields}
    return user(exec={key: value for key, value in given.items() if value is not None})


def cluster(**fields: object) -> Edit:
    return lambda config: config.cluster.update({k.replace("_", "-"): v for k, v in fields.items()})


def twice(plural: str) -> Edit:
    """Two of one name; the second is another one."""
    single = plural[:-1]
    return lambda config: config[plural].append({**config[plural][0], single: {"server": "https://second"}})


def both(*edits: Edit) -> Edit:
    return lambda config: [edit(config) for edit in edits]


PAIR = {"client_certificate_data": "eA==", "client_key_data": "eA=="}

REFUSED: dict[str, tuple[Edit, str]] = {
    "two users of one name": (twice("users"), r"has two users of one name, among u1, u1; rename or remove one"),
    "two clusters of one name": (twice("clusters"), r"has two clusters of one name"),
    "two contexts of one name": (twice("contexts"), r"has two contexts of one name"),
    "two of one name that are not used": (
        lambda config: config["users"].extend([{"name": "x"}, {"name": "x"}]),
        r"two users of one name",
    ),
    "a token beside a username": (user(token="t", username="u"), r"user 'u1' has more than one way to log in"),
    "a token file beside a password": (user(tokenFile="t", password="p"), r"more than one way to log in"),
    "a certificate beside its data": (
        user(client_certificate="c", **PAIR),
        r"user 'u1' has both client-certificate and client-certificate-data; remove one",
    ),
    "a key beside its data": (user(client_key="k", **PAIR), r"both client-key and client-key-data"),
    "a CA beside its data": (
        cluster(certificate_authority="ca", certificate_authority_data="eA=="),
        r"cluster 'c1' has both certificate-authority and certificate-authority-data",
    ),
    "exec beside an auth provider": (
        both(plugin(), lambda config: config.user.update({"auth-provider": {"name": "oidc", "config": {}}})),
        r"has both exec and auth-provider",
    ),
    "groups without a user": (user(token="t", as_groups=["g"]), r"user 'u1' has as-uid, as-groups or as-user-extra wi"),
    "a UID without a user": (user(token="t", as_uid="7"), r"without as"),
    "extras without a user": (user(token="t", as_user_extra={"k": ["v"]}), r"without as"),
    "exec without a command": (plugin(command=None), r"user 'u1': exec has no command"),
    "exec without apiVersion": (plugin(apiVersion=None), r"user 'u1': exec has no apiVersion"),
    "exec of an unknown apiVersion": (
        plugin(apiVersion="client.authentication.k8s.io/v1alpha1"),
        r"exec has an apiVersion that is not supported; use one of client.authentication.k8s.io/v1, client.auth",
    ),
    "exec v1 without interactiveMode": (plugin(interactiveMode=None), r"exec has no interactiveMode.*add Never"),
    "exec of an unknown interactiveMode": (plugin(interactiveMode="Sometimes"), r"none of Never, IfAvailable, Always"),
    "a variable without a name": (plugin(env=[{"value": "x"}]), r"env is not a list of mappings with name and value"),
    "another kind": (lambda config: config.update(kind="Secret"), r"is not a kubeconfig: its kind is not Config"),
    "another apiVersion": (lambda config: config.update(apiVersion="v2"), r"its apiVersion is not v1"),
    "port 0": (cluster(server="https://127.0.0.1:0"), r"nobody serves on port 0"),
    "a user in the server's URL": (
        cluster(server="https://robot:secret-token@127.0.0.1:6443"),
        r"the server's URL holds a user or password; give them as the user's username and password",
    ),
}


@pytest.mark.parametrize(("edit", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(edit: Edit, message: str, config: Config) -> None:
    edit(config)
    with pytest.raises(ClientConfigError, match=message) as caught:
        config.load()
    assert "secret-token" not in str(caught.value)


def basic(pair: str) -> str:
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


SENT: dict[str, tuple[Edit, str]] = {
    "a username alone": (user(username="robot"), basic("robot:")),
    "a password alone": (user(password="secret"), basic(":secret")),
    "a username with an empty password": (user(username="robot", password=""), basic("robot:")),
    "a token beside exec": (both(plugin(command="no-such"), lambda c: c.user.update(token="t")), "Bearer t"),
    "a username beside exec": (both(plugin(command="no-such"), lambda c: c.user.update(username="u")), basic("u:")),
    "a token beside an auth provider": (
        user(token="t", auth_provider={"name": "oidc", "config": {}}),
        "Bearer t",
    ),
    "no kind and no apiVersion": (lambda config: [config.pop("kind"), config.pop("apiVersion")], "Bearer secret-token"),
    "two users that are the same but for the name": (
        lambda config: config["users"].append({**config["users"][0], "name": "u2"}),
        "Bearer secret-token",
    ),
    "empty lists and texts are not there": (
        user(token="t", username="", as_groups=[], as_uid="", as_user_extra={}),
        "Bearer t",
    ),
}


@pytest.mark.parametrize(("edit", "authorization"), SENT.values(), ids=SENT)
def test_sent(edit: Edit, authorization: str, config: Config) -> None:
    edit(config)
    assert config.load().source.fetch().authorization == authorization


@pytest.mark.parametrize(
    "edit",
    [
        plugin(apiVersion="client.authentication.k8s.io/v1beta1", interactiveMode=None),
        plugin(interactiveMode="IfAvailable"),
        plugin(interactiveMode="Always"),  # laxer than client-go, which then wants a terminal
        plugin(env=[{"name": "X"}, {"name": "Y", "value": None}, {"name": "Z", "value": "z"}]),
    ],
)
def test_plugins_that_are_taken(edit: Edit, config: Config) -> None:
    edit(config)
    source = config.load().source
    assert isinstance(source, kubeconfig.Kubeconfig)
    assert isinstance(source.reading.source, ExecPlugin)


def test_a_plugin_is_not_run_beside_a_client_certificate(config: Config, tmp_path: Path) -> None:
    """Not even looked for: the certificate is the identity."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("static")
    config["users"][0]["user"] = {
        "client-certificate": str(cert),
        "client-key": str(key),
        "exec": {**EXEC, "command": "no-such-program"},
    }
    with Server(tls=authority.server_context(ask_client=True)) as server:
        config.cluster.update({"certificate-authority": "ca.crt", "server": server.url})
        with ClientBuilder(config.load()) as clients:
            clients.rest("x").get("/")
            assert "authorization" not in server.requests[0].headers
            assert Path(str(clients.config("x").cert_file)).read_bytes() == cert.read_bytes()


class TestWhatAPluginAnswers:
    def answer(self, tmp_path: Path, **status: str) -> ExecPlugin:
        program = tmp_path / "plugin"
        document = {"apiVersion": EXEC["apiVersion"], "kind": "ExecCredential", "status": status}
        (tmp_path / "answer").write_text(json.dumps(document))
        program.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
        program.chmod(0o755)
        return ExecPlugin({**EXEC, "command": str(program)}, str(tmp_path), {})

    def test_an_expiry_without_a_zone(self, tmp_path: Path) -> None:
        with pytest.raises(CredentialsUnavailable, match="expirationTimestamp has no time zone"):
            self.answer(tmp_path, token="t", expirationTimestamp="2006-01-02T15:04:05").fetch()

    def test_a_certificate_that_is_none(self, tmp_path: Path) -> None:
        with pytest.raises(CredentialsUnavailable, match="gave a certificate and key that cannot be used") as caught:
            self.answer(tmp_path, clientCertificateData="bar", clientKeyData="secret-key").fetch()
        assert "secret-key" not in str(caught.value)


@pytest.mark.row("X17")
class TestPlainHTTP:
    """client-go sends no credential there at all; ours, to this machine."""

    @pytest.mark.parametrize("secret", [{"token": "t"}, {"username": "u", "password": "p"}, {"tokenFile": "/no"}])
    @pytest.mark.parametrize("server", ["http://10.0.0.1:8080", "10.0.0.1:8080"])
    def test_none_leaves_this_machine(
        self, server: str, secret: dict[str, Any], config: Config, caplog: pytest.LogCaptureFixture
    ) -> None:
        config["users"][0]["user"] = secret
        config.cluster["server"] = server
        access = config.load()
        assert access.source.fetch().authorization == ""
        assert "none goes over plain HTTP to http://10.0.0.1:8080" in access.source.origin
        (warning,) = told(caplog)
        assert "is not sent to http://10.0.0.1:8080" in warning
        assert "--allow-credentials-over-http" in warning

    def test_a_plugin_is_not_run(self, config: Config) -> None:
        plugin(command="no-such-program")(config)
        config.cluster["server"] = "http://10.0.0.1"
        assert config.load().source.fetch().authorization == ""

    def test_nor_through_a_proxy(self, config: Config) -> None:
        config.cluster.update({"server": "http://localhost:8080", "proxy-url": "http://proxy.test"})
        assert config.load().source.fetch().authorization == ""

    @pytest.mark.parametrize("server", ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"])
    def test_to_this_machine_it_does(self, server: str, config: Config, caplog: pytest.LogCaptureFixture) -> None:
        config.cluster["server"] = server
        assert config.load().source.fetch().authorization == "Bearer secret-token"
        assert told(caplog) == []

    def test_where_a_flag_says_so(self, config: Config, caplog: pytest.LogCaptureFixture) -> None:
        config.cluster["server"] = "http://10.0.0.1:8080"
        access = kubeconfig.load(config.write(), None, NO_ENV, over_http=True)
        assert access.source.fetch().authorization == "Bearer secret-token"
        (warning,) = told(caplog)
        assert "goes to http://10.0.0.1:8080 over plain HTTP (--allow-credentials-over-http)" in warning
        assert "secret" not in warning

    def test_nor_tokens_of_service_accounts(self, config: Config) -> None:
        config.cluster["server"] = "http://10.0.0.1:8080"
        with pytest.raises(ClientConfigError, match=r"--use-service-account-credentials: tokens would go to http"):
            ClientBuilder.from_options(config.write(), settings=ClientSettings(service_accounts="kube-system"))
        settings = ClientSettings(service_accounts="kube-system", over_http=True)
        ClientBuilder.from_options(config.write(), settings=settings).close()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings, but for that of the file's mode."""
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [line for line in lines if "readable by every user" not in line]
