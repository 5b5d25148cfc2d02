"""Options lead to the right server with the right credentials, or to a message that names the
culprit and the fix."""

from __future__ import annotations

import base64
import json
import os
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import CoreV1Api
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from kubernetes.client.exceptions import UnauthorizedException

from controllers.runtime.api import ClientBuilder, ClientConfigError, ClientSettings, kubeconfig
from controllers.runtime.api.credentials import Fixed, Source, TokenFile
from controllers.runtime.api.execplugin import ExecPlugin
from controllers.runtime.api.kubeconfig import load
from tests.support.clock import FakeClock
from tests.support.there import there
from tests.unit.runtime.kubeconfigs import EXEC, NO_ENV, Config
from tests.unit.runtime.loopback import EMPTY_LIST, Authority, Peer, Server


@pytest.fixture(autouse=True)
def no_proxy_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def inline(config: Config, folder: Path) -> Authority:
    """Give the config a CA and a client certificate as data."""
    authority = Authority(folder)
    cert, key = authority.issue("client")
    config.cluster["certificate-authority-data"] = base64.b64encode(authority.pem).decode()
    for name, file in (("certificate", cert), ("key", key)):
        config.user[f"client-{name}-data"] = base64.b64encode(file.read_bytes()).decode()
    return authority


def chosen(access: kubeconfig.Access) -> Source:
    """Which of the kubeconfig's credentials it is."""
    assert isinstance(access.source, kubeconfig.Kubeconfig)
    return access.source.reading.source


class TestKubeConfig:
    def test_server_and_token_and_master_overrides_the_server(self, config: Config) -> None:
        for master, url in ((None, "https://10.0.0.1:6443"), ("https://other.test:8443", "https://other.test:8443")):
            access = config.load(master)
            assert access.endpoint.url == url
            assert isinstance(chosen(access), Fixed)
            assert access.source.fetch().authorization == "Bearer secret-token"
            assert "secret-token" not in repr(access.source.fetch())
        assert Configuration._default is None, "the process's default stays untouched"

    def test_tls_settings(self, config: Config, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        authority.issue("client")
        config.cluster.update({"certificate-authority": "ca.crt", "tls-server-name": "kubernetes"})
        config.user.update({"client-certificate": "client.crt", "client-key": "client.key"})
        access = config.load()
        settings = access.tls
        # Relative to the kubeconfig, not to the working directory.
        assert Path(settings.ca_file).read_bytes() == (tmp_path / "ca.crt").read_bytes()
        assert Path(settings.cert_file).read_bytes() == (tmp_path / "client.crt").read_bytes()
        assert Path(settings.key_file).read_bytes() == (tmp_path / "client.key").read_bytes()
        assert settings.verify
        assert access.endpoint.server_name == "kubernetes"
        settings.context()

    def test_inline_data_and_insecure(self, config: Config, tmp_path: Path) -> None:
        authority = inline(config, tmp_path)
        settings = config.load().tls
        settings.context()
        assert Path(settings.ca_file).read_bytes() == authority.pem
        del config.cluster["certificate-authority-data"]
        config.cluster["insecure-skip-tls-verify"] = True
        assert not config.load().tls.verify

    @pytest.mark.parametrize(
        ("user", "authorization"),
        [
            ({"username": "jane", "password": "pw"}, "Basic amFuZTpwdw=="),
            ({"username": "jané", "password": "ü"}, f"Basic {base64.b64encode('jané:ü'.encode()).decode()}"),
            ({}, ""),
            (None, ""),
        ],
    )
    def test_other_credentials(self, user: dict[str, Any] | None, authorization: str, config: Config) -> None:
        if user is None:
            config["contexts"][0]["context"].pop("user")
        else:
            config["users"][0]["user"] = user
        assert config.load().source.fetch().authorization == authorization

    def test_a_token_file_is_read_again(self, config: Config, tmp_path: Path) -> None:
        """The official loader reads it once, and keeps the newline in the header."""
        (tmp_path / "token").write_text("one\n")
        config["users"][0]["user"] = {"tokenFile": "token"}
        access = config.load()
        source = access.source
        assert isinstance(chosen(access), TokenFile)
        assert source.fetch().authorization == "Bearer one"
        (tmp_path / "token").write_text("two\n")
        assert source.fetch().authorization == "Bearer two"

    def test_an_exec_plugin(self, config: Config, tmp_path: Path) -> None:
        plugin = tmp_path / "plugin"
        document = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
        answer = json.dumps({**document, "status": {"token": "$T$1"}}).replace('"', '\\"')
        plugin.write_text(f'#!/bin/sh\necho "{answer}"\n')
        plugin.chmod(0o700)
        settings = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "./plugin",
            "args": ["-arg"],
            "env": [{"name": "T", "value": "tok"}],
            "interactiveMode": "Never",
        }
        config["users"][0]["user"] = {"exec": settings}
        access = config.load()
        assert isinstance(chosen(access), ExecPlugin)
        assert access.source.fetch().authorization == "Bearer tok-arg"

    def test_impersonation(self, config: Config) -> None:
        """The official loader ignores it, and so would act with more rights than were given."""
        config.user.update({"as": "jane", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"k": ["v"]}})
        assert config.load().headers == (
            ("Impersonate-User", "jane"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Group", "a"),
            ("Impersonate-Group", "b"),
            ("Impersonate-Extra-k", "v"),
        )


class TestProxies:
    def test_of_the_kubeconfig(self, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_PROXY", "10.0.0.1")
        config.cluster["proxy-url"] = "http://proxy.test:3128"
        access = config.load()
        proxy = there(access.endpoint.proxy)
        assert (proxy.host, proxy.port) == ("proxy.test", 3128)

    @pytest.mark.parametrize(
        ("server", "exceptions", "used"),
        [
            ("https://10.0.0.1:6443", "", True),
            ("https://10.0.0.1:6443", "10.0.0.0/8", False),
            ("https://127.0.0.1:6443", "", False),
            ("https://localhost:6443", "", False),
            ("https://[::1]:6443", "", False),
        ],
    )
    def test_of_the_environment(self, server: str, exceptions: str, used: bool, config: Config) -> None:
        config.cluster["server"] = server
        access = config.load(environ={"HTTPS_PROXY": "proxy.test:3128", "NO_PROXY": exceptions})
        assert (access.endpoint.proxy is not None) is used
        assert not used or there(access.endpoint.proxy).url == "http://proxy.test:3128"

    def test_one_that_cannot_be_used_is_named(self, config: Config) -> None:
        with pytest.raises(
            ClientConfigError, match=r"HTTPS_PROXY in the environment: unsupported proxy ftp://proxy\.test"
        ) as caught:
            config.load(environ={"HTTPS_PROXY": "ftp://me:secret@proxy.test"})
        assert "secret" not in str(caught.value)


@pytest.mark.row("K9")
class TestAsClientGo:
    """Where the former reading differed from client-go's."""

    def test_a_token_file_wins_over_a_token_which_serves_while_the_file_is_missing(
        self, config: Config, tmp_path: Path
    ) -> None:
        config.user["tokenFile"] = "token"
        assert config.load().source.fetch().authorization == "Bearer secret-token"
        (tmp_path / "token").write_text("from-the-file")
        source = config.load().source
        assert source.fetch().authorization == "Bearer from-the-file"
        (tmp_path / "token").unlink()
        assert source.fetch().authorization == "Bearer secret-token"

    @pytest.mark.parametrize(
        ("key", "header"),
        [
            ("authentication.kubernetes.io/credential-id", "authentication.kubernetes.io%2Fcredential-id"),
            ("100%", "100%25"),
            ("a b:ö", "a%20b%3A%C3%B6"),
            ("with\r\nbreak", "with%0D%0Abreak"),
        ],
    )
    def test_keys_of_extra_are_escaped(self, key: str, header: str, config: Config) -> None:
        config.user.update({"as": "jane", "as-user-extra": {key: ["v"]}})
        assert config.load().headers[1] == (f"Impersonate-Extra-{header}", "v")

    @pytest.mark.parametrize(
        ("cluster", "user", "scheme"),
        [
            ({}, {}, "http"),
            ({"insecure-skip-tls-verify": True}, {}, "https"),
            ({"certificate-authority-data": "Y2E="}, {}, "https"),
            ({}, {"client-certificate-data": "Yw==", "client-key-data": "aw=="}, "https"),
        ],
    )
    def test_a_server_without_a_scheme(
        self, cluster: dict[str, Any], user: dict[str, Any], scheme: str, config: Config
    ) -> None:
        config.cluster.update({"server": "localhost:6443", **cluster})
        config.user.update(user)
        assert config.load().endpoint.url == f"{scheme}://localhost:6443"

    def test_a_master_without_a_scheme(self, config: Config) -> None:
        assert load(None, "10.0.0.1:8080", NO_ENV).endpoint.url == "http://10.0.0.1:8080"
        config.cluster["certificate-authority-data"] = "Y2E="
        assert config.load("10.0.0.9:6443").endpoint.url == "https://10.0.0.9:6443"

    @pytest.mark.parametrize("proxy", ["https://proxy.test:3128", "socks5://proxy.test:1080", "socks5h://proxy.test"])
    def test_https_and_socks_proxies(self, proxy: str, config: Config) -> None:
        config.cluster["proxy-url"] = proxy
        found = there(config.load().endpoint.proxy)
        assert (found.host, found.scheme) == ("proxy.test", proxy.partition("://")[0].removesuffix("h"))
        ours = config.load(environ={"HTTPS_PROXY": "socks5://elsewhere.test"}).endpoint.proxy
        assert ours == found

    def test_without_a_folder_for_temporary_files(
        self, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A read-only root file system is good practice, and inline data needs no writable one."""
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
        inline(config, tmp_path)
        ClientBuilder(config.load()).close()
        config["users"][0]["user"] = {"exec": {**EXEC, "command": "true"}}
        ClientBuilder(config.load()).close()


class TestWarnings:
    """One line for each thing that is allowed, and dangerous."""

    @staticmethod
    def _told(caplog: pytest.LogCaptureFixture, path: str) -> list[str]:
        os.chmod(path, 0o600)
        load(path, None, NO_ENV)
        return [record.getMessage() for record in caplog.records]

    @pytest.mark.parametrize(
        ("server", "secret"),
        [("https://10.0.0.1:6443", {"token": "t"}), ("http://127.0.0.1:1", {"token": "t"}), ("http://10.0.0.1", {})],
    )
    def test_nothing_is_said_without_a_reason(
        self, server: str, secret: dict[str, Any], config: Config, caplog: pytest.LogCaptureFixture
    ) -> None:
        config["users"][0]["user"] = secret
        config.cluster["server"] = server
        assert self._told(caplog, config.write()) == []

    @pytest.mark.row("X8")
    def test_verification_is_off(self, config: Config, caplog: pytest.LogCaptureFixture) -> None:
        config.cluster["insecure-skip-tls-verify"] = True
        (warning,) = self._told(caplog, config.write())
        assert "TLS verification is off for https://10.0.0.1:6443" in warning

    @pytest.mark.row("X8")
    def test_a_kubeconfig_that_everybody_can_read(self, config: Config, caplog: pytest.LogCaptureFixture) -> None:
        path = config.write()
        os.chmod(path, 0o644)
        load(path, None, NO_ENV)
        (warning,) = [record.getMessage() for record in caplog.records]
        assert f"{path} is readable by every user of this machine (mode 644)" in warning


@pytest.mark.row("X8")
def test_inline_keys_touch_no_disk(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed leaves none behind: there never is a file, whatever folder may be
    written to."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with Server(tls=inline(config, tmp_path).server_context(ask_client=True)) as server:
        config.cluster["server"] = server.url
        with ClientBuilder(config.load()) as clients:
            clients.rest("x").get("/")
            CoreV1Api(clients.client("vendor")).list_namespace()
            assert list(folder.iterdir()) == []


IN_POD = {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "443"}


class TestInCluster:
    @pytest.fixture
    def account(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        (tmp_path / "token").write_text("account-token")
        (tmp_path / "ca.crt").write_bytes(Authority(tmp_path).pem)
        monkeypatch.setattr(kubeconfig, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
        monkeypatch.setattr(kubeconfig, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
        return tmp_path

    @pytest.mark.parametrize(
        ("host", "master", "url"),
        [
            ("10.96.0.1", None, "https://10.96.0.1:443"),
            ("fd00::1", None, "https://[fd00::1]:443"),
            ("h", "https://10.1.1.1:6443", "https://10.1.1.1:6443"),
        ],
    )
    def test_the_service_account(self, account: Path, host: str, master: str | None, url: str) -> None:
        access = load(None, master, {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"})
        assert access.endpoint.url == url
        assert access.tls.ca_file == str(account / "ca.crt")
        assert access.source.fetch().authorization == "Bearer account-token"

    def test_an_empty_token_is_not_fatal(self, account: Path) -> None:
        (account / "token").write_text("")
        assert isinstance(load(None, None, IN_POD).source, TokenFile)

    @pytest.mark.row("X17")
    @pytest.mark.parametrize("master", ["http://127.0.0.1:8001", "HTTP://127.0.0.1:8001", " http://127.0.0.1:8001"])
    def test_a_plain_master_gets_no_token(self, master: str, account: Path) -> None:
        assert load(None, master, IN_POD).source.fetch().authorization == ""

    @pytest.mark.parametrize("missing", ["token", "ca.crt"])
    def test_an_account_that_is_not_mounted(self, account: Path, missing: str) -> None:
        (account / missing).unlink()
        with pytest.raises(ClientConfigError, match=rf"{missing} is missing.*automountServiceAccountToken"):
            load(None, None, IN_POD)

    @pytest.mark.parametrize(
        ("master", "environ", "told"),
        [
            (None, NO_ENV, r"KUBERNETES_SERVICE_HOST is not set.*pass --kubeconfig or --master"),
            (None, {"KUBERNETES_SERVICE_HOST": "h"}, "KUBERNETES_SERVICE_PORT is not"),
            ("", {"KUBECONFIG": "/home/me/.kube/config"}, r"--kubeconfig=/home/me/\.kube/config"),
            ("ftp://10.0.0.1", NO_ENV, r"--master: not a server URL: 'ftp://10\.0\.0\.1'"),
        ],
        ids=["nothing", "half an environment", "kubectl's variable", "a bad master"],
    )
    def test_it_says_what_to_pass(self, master: str | None, environ: dict[str, str], told: str) -> None:
        with pytest.raises(ClientConfigError, match=told):
            load(None, master, environ)

    def test_master_alone(self) -> None:
        access = load(None, "http://10.0.0.1:8080/", NO_ENV)
        assert access.endpoint.url == "http://10.0.0.1:8080"
        assert access.source.fetch().authorization == ""


def _set(path: str, value: object) -> Callable[[Config], None]:
    """An edit of the config: cluster.x, user.x, context.x or x; None removes."""

    def edit(config: Config) -> None:
        where, _, key = path.rpartition(".")
        places = {"": config, "cluster": config.cluster, "user": config.user}
        places["context"] = config["contexts"][0]["context"]
        if value is None:
            places[where].pop(key)
        else:
            places[where][key] = value

    return edit


def _only(**user: object) -> Callable[[Config], None]:
    def edit(config: Config) -> None:
        config["users"][0]["user"] = user

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (_set("current-context", None), r"has no current-context; choose one of main, spare"),
        (_set("current-context", "other"), r"current-context names the context 'other', which is missing.*main, spare"),
        (_set("context.cluster", "c2"), r"context 'main' names the cluster 'c2', which is missing; there are c1"),
        (_set("context.cluster", None), r"context 'main' has no cluster"),
        (_set("context.user", "u2"), r"context 'main' names the user 'u2', which is missing; there are u1"),
        (_set("users", None), r"names the user 'u1', which is missing; there are none"),
        (_set("cluster.server", None), r"cluster 'c1' has no server"),
        (_set("cluster.server", "ftp://10.0.0.1"), r"cluster 'c1': not a server URL"),
        (_set("cluster.server", "10.0.0.1%0d%0aX"), r"cluster 'c1': not a server URL"),
        (_set("cluster.proxy-url", "socks4://p"), r"cluster 'c1': unsupported proxy socks4://p; use http"),
        (
            _set("cluster.certificate-authority", "no.crt"),
            r"cluster 'c1': certificate-authority .*/no.crt is not a file",
        ),
        (_set("cluster.certificate-authority-data", "%%"), r"certificate-authority-data is not base64"),
        (
            lambda config: config.cluster.update(
                {"certificate-authority-data": "Y2E=", "insecure-skip-tls-verify": True}
            ),
            r"cluster 'c1' has both insecure-skip-tls-verify and a certificate authority",
        ),
        (
            _only(**{"client-certificate": "no.crt", "client-key": "no.key"}),
            r"user 'u1': client-certificate .*no.crt is not a file",
        ),
        (_set("user.client-key-data", "eA=="), r"user 'u1' has a client key but no client-certificate"),
        (_set("user.client-certificate-data", "eA=="), r"user 'u1' has a client certificate but no client-key"),
        (_only(tokenFile="no-token"), r"user 'u1': tokenFile .*no-token is not a file"),
        (_set("user.token", 12345), r"user 'u1': token is not a string"),
        (_set("user.token", "a b"), r"user 'u1': token is not a bearer token"),
        (_only(username="jane", password=12345), r"user 'u1': password is not a string; put it in quotes"),
        (_only(**{"auth-provider": {"name": "oidc"}}), r"auth-provider 'oidc' is not supported; use an exec plugin"),
        (_set("user.exec", "x"), r"user 'u1': exec is not a mapping"),
        (_set("user.exec", {"command": "x"}), r"user 'u1': exec has no apiVersion"),
        (
            _only(exec={**EXEC, "command": "no-such-plugin", "installHint": "Get it at the shop."}),
            r"no program 'no-such-plugin' for exec; Get it at the shop\.",
        ),
        (_set("user.as", "jané"), r"only ASCII text"),
        (_set("user.as", 7), r"user 'u1': as is not a string; put it in quotes"),
        (_set("user.as-groups", "system:masters"), r"user 'u1': as-groups is not a list of strings"),
        (_set("user.as-user-extra", {"scopes": "view"}), r"user 'u1': as-user-extra is not a mapping of lists of str"),
        (_set("cluster.insecure-skip-tls-verify", "false"), r"insecure-skip-tls-verify is not true or false, without"),
        (_set("cluster.proxy-url", 8080), r"cluster 'c1': proxy-url is not a string"),
        (_set("user.exec", {"command": "true", "apiVersion": "v1", "args": "token"}), r"exec: args is not a list of"),
        (_set("user.exec", {"command": "true", "apiVersion": "v1", "env": {"A": "1"}}), r"exec: env is not a list of"),
    ],
)
def test_what_is_wrong_is_named(edit: Callable[[Config], None], message: str, config: Config) -> None:
    edit(config)
    path = config.write()
    with pytest.raises(ClientConfigError, match=message) as caught:
        load(path, None, NO_ENV)
    assert path in str(caught.value)
    assert "secret-token" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"config is empty"),
        ("- a", r"is not a kubeconfig"),
        ("a: 'secret-token\nb: [", r"is not valid YAML at line \d"),
        ("a: *secret-token", r"is not valid YAML at line 1: found undefined alias$"),
        ("a: !secret-token", r"is not valid YAML at line 1: could not determine a constructor for the tag$"),
        ("a: !!bool secret-token", r"unreadable \(KeyError\)$"),
    ],
)
def test_a_file_that_is_no_kubeconfig(content: str, message: str, config: Config) -> None:
    with pytest.raises(ClientConfigError, match=message) as caught:
        load(config.write(content), None, NO_ENV)
    assert "secret-token" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ClientConfigError, match=r"no/config: No such file or directory; correct --kubeconfig"):
        load(str(tmp_path / "no" / "config"), None, NO_ENV)
    with pytest.raises(ClientConfigError, match=r"Is a directory"):
        load(str(tmp_path), None, NO_ENV)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ClientConfigError, match="is not a text file"):
        load(str(binary), None, NO_ENV)


def test_unusable_tls_files_are_told_at_once(config: Config, tmp_path: Path) -> None:
    (tmp_path / "bad.crt").write_text("no certificate")
    config.cluster["certificate-authority"] = "bad.crt"
    with pytest.raises(ClientConfigError, match=r"TLS files cannot be used: .*bad\.crt"):
        ClientBuilder.from_options(kubeconfig=config.write())


def test_from_options_to_an_answer(config: Config, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with Server(tls=authority.server_context()) as server:
        config.cluster.update({"certificate-authority": "ca.crt", "server": server.url})
        with ClientBuilder.from_options(kubeconfig=config.write(), settings=ClientSettings(program="ccm")) as clients:
            assert clients.server == server.url
            clients.rest("x").get("/api/v1/nodes")
            assert server.requests[0].headers["authorization"] == "Bearer secret-token"


def plug(config: Config, folder: Path, **status: str) -> Path:
    """Give the config a plugin with this answer; returns the file that the answer stands in."""
    answer, plugin = folder / "answer.json", folder / "plugin"
    document = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    answer.write_text(json.dumps(document))
    plugin.write_text(f"#!/bin/sh\ncat {answer}\n")
    plugin.chmod(0o755)
    config["users"][0]["user"] = {"exec": {**EXEC, "command": str(plugin)}}
    return answer


def test_a_plugin_that_asks_about_the_cluster_gets_the_ca_as_data(config: Config, tmp_path: Path) -> None:
    plug(config, tmp_path, token="plugged")
    told = tmp_path / "told.json"
    plugin = Path(config.user["exec"]["command"])
    plugin.write_text(plugin.read_text() + f'echo "$KUBERNETES_EXEC_INFO" > {told}\n')
    config.user["exec"]["provideClusterInfo"] = True
    config.cluster["certificate-authority"] = "ca.crt"
    authority = Authority(tmp_path)
    config.load().source.fetch()
    assert json.loads(told.read_text())["spec"]["cluster"] == {
        "server": "https://10.0.0.1:6443",
        "certificate-authority-data": base64.b64encode(authority.pem).decode(),
    }


def test_a_plugins_certificate_is_presented(config: Config, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("plugin-client")
    plug(config, tmp_path, clientCertificateData=cert.read_text(), clientKeyData=key.read_text())
    with Server(tls=authority.server_context(ask_client=True)) as server:
        config.cluster.update({"certificate-authority": "ca.crt", "server": server.url})
        clients = ClientBuilder.from_options(kubeconfig=config.write())
        clients.rest("x").get("/")
        assert "authorization" not in server.requests[0].headers
        assert Path(str(clients.config("x").cert_file)).read_text() == cert.read_text()  # for vendors' own clients
        clients.close()


class TestAPluginThatGivesATokenAlone:
    def test_a_providers_clients_need_no_certificate(self, config: Config, tmp_path: Path) -> None:
        plug(config, tmp_path, token="plugged")
        with Server(tls=Authority(tmp_path).server_context()) as server:
            config.cluster.update({"certificate-authority": "ca.crt", "server": server.url})
            with ClientBuilder.from_options(kubeconfig=config.write()) as clients:
                CoreV1Api(clients.client("x")).list_node()
                CoreV1Api(ApiClient(clients.config("x"))).list_node()
                assert [request.headers["authorization"] for request in server.requests] == ["Bearer plugged"] * 2

    def test_one_made_before_the_plugin_answers(self, config: Config, tmp_path: Path, clock: FakeClock) -> None:
        answer = plug(config, tmp_path, token="plugged")
        answer.rename(tmp_path / "later.json")
        with Server(tls=Authority(tmp_path).server_context()) as server:
            config.cluster.update({"certificate-authority": "ca.crt", "server": server.url})
            with ClientBuilder.from_options(kubeconfig=config.write(), clock=clock) as clients:
                client = CoreV1Api(clients.client("x"))
                (tmp_path / "later.json").rename(answer)
                clock.advance(1)
                client.list_node()
                assert server.requests[0].headers["authorization"] == "Bearer plugged"


def test_a_provider_shows_the_new_certificate_after_the_old_one_was_refused(config: Config, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("old")

    def serve(peer: Peer) -> None:
        assert isinstance(peer.sock, ssl.SSLSocket)
        shown = ssl.DER_cert_to_PEM_cert(peer.sock.getpeercert(True) or b"")
        while peer.request():
            peer.answer(200 if shown in cert.read_text() else 401, EMPTY_LIST)

    config["users"][0]["user"] = {"client-certificate": str(cert), "client-key": str(key)}
    with Server(serve, tls=authority.server_context(ask_client=True)) as server:
        config.cluster.update({"certificate-authority": "ca.crt", "server": server.url})
        with ClientBuilder.from_options(kubeconfig=config.write()) as clients:
            api = CoreV1Api(clients.client("x"))
            api.list_node()
            for file, new in zip((cert, key), authority.issue("new"), strict=True):
                new.rename(file)
            with pytest.raises(UnauthorizedException):
                api.list_node()
            api.list_node()
            assert server.connections == 2
