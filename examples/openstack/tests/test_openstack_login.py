"""The login in each of its forms, tokens, time limits, what is wrong before the start, and how
OpenStack's refusals read."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from keystoneauth1 import exceptions as keystone
from openstack.exceptions import HttpException, raise_from_response
from openstack_provider.config import Config
from openstack_provider.provider import OpenStack, new_provider
from openstack_provider.rest import OpenStackError, answered
from openstackdouble import Double, served
from osbench import login, node, provider

from cloudprovider import (
    Call,
    CallDeadlineExceeded,
    CloudConfig,
    CloudProviderError,
    Pending,
    QuotaExceeded,
    RetryError,
    Throttled,
    call_scope,
)
from cloudprovider.errors import InvalidConfig
from cloudprovider.testing.conformance.bench import NoCluster


@pytest.fixture
def cloud() -> Iterator[Double]:
    with served() as double:
        yield double


def asks(text: str, path: str = "") -> OpenStack:
    """A provider by this cloud.conf, whose login has worked."""
    made = new_provider(CloudConfig(path, text.encode()))
    assert isinstance(made, OpenStack)
    assert not made.instances_v2().instance_exists(node("nowhere"))
    return made


def clouds_yaml(cloud: Double, password: str = "") -> str:
    return (
        f"clouds:\n  lab:\n    region_name: {cloud.region}\n    auth: {{auth_url: '{cloud.auth_url}', username: "
        f"{cloud.user}, password: '{password or cloud.password}', project_name: {cloud.project}, user_domain_id: "
        "default, project_domain_id: default}\n    status_code_retries: 5\ncache: {expiration_time: 3600}\n"
    )


def test_an_application_credential(cloud: Double) -> None:
    asks(
        f"[Global]\nauth-url={cloud.auth_url}\napplication-credential-id={cloud.application_credential_id}\n"
        f'application-credential-secret="{cloud.application_credential_secret}"\n'
    )


def test_clouds_yaml_and_the_environment(cloud: Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "clouds.yaml"
    file.write_text(clouds_yaml(cloud))
    by_file = asks(f"[Global]\nuse-clouds=true\nclouds-file={file}\ncloud=lab\n")
    assert by_file.cloud.region == cloud.region
    assert not by_file.cloud.sdk.cache_enabled  # an old answer would say that a machine is there
    cloud.answers["GET nova"] = (503, {})
    since = len(cloud.requests)
    with pytest.raises(CloudProviderError, match="503"):
        by_file.instances_v2().instance_exists(node("nowhere"))
    assert len(cloud.requests) == since + 1  # not tried again here, whatever clouds.yaml says
    cloud.answers.clear()

    file.write_text(clouds_yaml(cloud, "another-password"))
    with pytest.raises(OpenStackError, match="401"):
        asks(f"[Global]\nclouds-file={file}\ncloud=lab\n")
    own = f'auth-url={cloud.auth_url}\nusername={cloud.user}\npassword="{cloud.password}"\n'
    asks(f"[Global]\nuse-clouds=true\nclouds-file={file}\ncloud=lab\n{own}")  # what stands here counts more
    file.write_text(clouds_yaml(cloud))

    odd = tmp_path / "odd.yaml"
    for text in ("clouds: {lab: {cache: {s3cret: 1}}}", "clouds: [s3cret", "s3cret: 1"):
        odd.write_text(text)
        with pytest.raises(InvalidConfig) as caught:
            asks(f"[Global]\nuse-clouds=true\nclouds-file={odd}\ncloud=lab\n")
        assert "s3cret" not in str(caught.value)

    for text, why in (
        (f"clouds-file={file}\ncloud=blue", "cloud: the file of logins has no entry of this name; it has: lab"),
        (f"clouds-file={tmp_path / 'cloud.yaml'}\ncloud=lab", "clouds-file: there is no such file"),
    ):
        with pytest.raises(InvalidConfig, match=re.escape(why)):
            asks(f"[Global]\n{text}\n")

    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
    monkeypatch.setenv("OS_CLOUD", "lab")
    asks("")
    monkeypatch.setenv("OS_CLOUD", "blue")
    with pytest.raises(InvalidConfig, match="OS_CLOUD: the file of logins has no entry of this name; it has: "):
        asks("")
    monkeypatch.delenv("OS_CLOUD")
    with pytest.raises(InvalidConfig, match="there is no login for OpenStack: give auth-url in"):
        asks("")
    variables = {"AUTH_URL": cloud.auth_url, "USERNAME": cloud.user, "PASSWORD": cloud.password}
    variables |= {"PROJECT_NAME": cloud.project, "USER_DOMAIN_ID": "default", "PROJECT_DOMAIN_ID": "default"}
    for name, value in variables.items():
        monkeypatch.setenv(f"OS_{name}", value)
    asks("")


def test_a_cloud_conf_of_the_go_manager_is_read_as_it_is(cloud: Double) -> None:
    config = Config.load(
        CloudConfig(
            "cloud.conf",
            b'[Global]\nauth-url="https://keystone.example/v3"\nusername=u\npassword="p#w"\ntenant-id=t\n'
            b"domain-name=Default\nca-file=/etc/ca.pem\n[Networking]\npublic-network-name=a\npublic-network-name=b\n"
            b"address-sort-order = 10.0.0.0/8, 192.168.0.0/16\n[LoadBalancer]\nlb-version=v2\nuse-octavia=true\n"
            b'monitor-delay=10s\nmanage-security-groups\n[LoadBalancerClass "inside"]\nfloating-subnet-id=s\n'
            b"[BlockStorage]\nbs-version=v3\n[Metadata]\nsearch-order=metadataService\n[Route]\nrouter-id=r\n",
        )
    )
    assert config.networking.public_network_name == ("a", "b")
    assert [str(one) for one in config.networking.address_sort_order] == ["10.0.0.0/8", "192.168.0.0/16"]
    assert config.loadbalancerclass["inside"].floating_subnet_id == "s"
    assert (config.loadbalancer.manage_security_groups, config.loadbalancer.monitor_delay) == (True, 10.0)
    with pytest.raises(InvalidConfig, match="line 2: auth_ulr: unknown field; did you mean auth_url"):
        Config.load(CloudConfig("cloud.conf", b"[Global]\nauth_ulr=x\n"))


def test_one_token_serves_all_threads_and_one_that_ended_is_renewed(cloud: Double) -> None:
    made = provider(cloud)
    server = cloud.create_server("web")
    threads = [
        threading.Thread(target=made.instances_v2().instance_exists, args=[node("web", server)]) for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cloud.counts()["keystone POST /v3/auth/tokens"] == 1
    cloud.end_tokens()
    assert made.instances_v2().instance_exists(node("web", server))
    assert cloud.counts()["keystone POST /v3/auth/tokens"] == 2


def test_a_wrong_password_is_told_without_it(cloud: Double) -> None:
    text = login(cloud).data.decode().replace(cloud.password, "not-the-password")
    with pytest.raises(OpenStackError, match=r"401: .* OpenStack did not accept the login: check user") as caught:
        asks(text)
    assert "not-the-password" not in str(caught.value)


def test_requests_end_before_the_call_and_one_without_time_is_not_sent(cloud: Double) -> None:
    made = asks(login(cloud).data.decode())
    cloud.delay = 20.0
    began = time.monotonic()
    with call_scope(Call(began + 1.7)), pytest.raises(OpenStackError, match="no answer in time"):
        made.instances_v2().instance_exists(node("web"))
    assert time.monotonic() - began < 10  # before the cloud answers, on a busy machine too
    with call_scope(Call(time.monotonic() + 1.2)), pytest.raises(CallDeadlineExceeded):
        made.instances_v2().instance_exists(node("unsent"))
    assert not any("unsent" in line for line in cloud.requests)


def test_a_changed_file_is_a_new_login(cloud: Double, tmp_path: Path) -> None:
    file, conf = tmp_path / "clouds.yaml", tmp_path / "cloud.conf"
    file.write_text(clouds_yaml(cloud))
    conf.write_text(f"[Global]\nuse-clouds=true\nclouds-file={file}\ncloud=lab\n")
    made = asks(conf.read_text(), str(conf))
    watcher = made._watcher()
    for _ in range(2):
        watcher.look()
    before = made.cloud.sdk
    watcher.look()
    assert made.cloud.sdk is before
    cloud.password = "rotated-password-of-today"
    cloud.end_tokens()
    with pytest.raises(OpenStackError):
        made.instances_v2().instance_exists(node("web"))
    file.write_text(clouds_yaml(cloud))
    conf.write_text(f"{conf.read_text()}[Networking]\nipv6-support-disabled=true\n")
    for _ in range(2):
        watcher.look()
    assert not made.instances_v2().instance_exists(node("web"))
    assert made.cloud.config.networking.ipv6_support_disabled


def test_a_login_for_another_project_is_not_taken(
    cloud: Double, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No server of the cluster is there: each of its nodes would be gone."""
    conf, stop = tmp_path / "cloud.conf", threading.Event()
    conf.write_bytes(login(cloud).data)
    made = asks(conf.read_text(), str(conf))
    server = cloud.create_server("web")
    made.initialize(NoCluster(), stop)
    stop.set()
    watcher = made._watcher()
    cloud.project, theirs = "another", cloud.project
    cloud.project_id, ours = "0123456789abcdef0123456789abcdef", cloud.project_id
    conf.write_bytes(login(cloud).data)
    for _ in range(3):
        watcher.look()
    assert f"is for the project 0123456789abcdef0123456789abcdef, and this cluster's is {ours}" in caplog.text
    cloud.project, cloud.project_id = theirs, ours
    assert made.instances_v2().instance_exists(node("web", server))
    assert made.cloud.config.tenant_name == theirs


# ---- before the start


def start(cloud: Double, more: str = "") -> None:
    stop = threading.Event()
    try:
        provider(cloud, more).initialize(NoCluster(), stop)
    finally:
        stop.set()


def test_all_that_the_cloud_lacks_is_told_at_once(cloud: Double) -> None:
    cloud.answers["GET octavia"] = (403, {"faultstring": "Policy does not allow this request to be performed."})
    more = (
        f"[LoadBalancer]\nsubnet-id = no-subnet\nfloating-network-id = {cloud.network}\n"
        '[LoadBalancerClass "inside"]\nnetwork-id = no-network\n'
        "[Networking]\ninternal-network-name = no-name\n[Route]\nrouter-id = no-router\n"
    )
    with pytest.raises(InvalidConfig) as caught:
        start(cloud, more)
    text = "\n".join(caught.value.problems)
    for part in (
        "403: Policy does not allow",
        "needs `member` in the project, and `load-balancer_member`",
        f"[LoadBalancer] floating-network-id: the network {cloud.network} is not external",
        '[LoadBalancerClass "inside"] network-id: there is no network no-network',
        "[Networking]: there is no network named no-name",
        "[LoadBalancer] subnet-id: there is no subnet no-subnet",
        "[Route] router-id: there is no router no-router",
    ):
        assert part in text


def test_a_region_that_is_not_there_or_lacks_octavia(cloud: Double) -> None:
    with pytest.raises(InvalidConfig, match="there is no region Nowhere; this login's catalog has: RegionOne"):
        start(cloud, "regions = Nowhere\n")
    with pytest.raises(InvalidConfig, match=r"no admin endpoint of load-balancer \(Octavia\); set enabled = false in"):
        start(cloud, "os-endpoint-type = admin\n")


def test_a_service_that_is_away_keeps_no_manager_from_starting(cloud: Double, caplog: pytest.LogCaptureFixture) -> None:
    cloud.answers["GET octavia"] = (503, {})
    start(cloud)
    assert "not checked at the start: GET " in caplog.text
    assert cloud.counts() == {
        "keystone POST /v3/auth/tokens": 1, "nova GET /v2.1": 1, "nova GET /v2.1/servers": 1,
        "octavia GET /v2.0/lbaas/loadbalancers": 1,
    }  # fmt: skip


# ---- refusals


def refusal(status: int, message: str, headers: dict[str, str] | None = None) -> HttpException:
    response = requests.Response()
    response.status_code = status
    response.headers.update({"Content-Type": "application/json", **(headers or {})})
    response._content = f'{{"error": {{"message": "{message}"}}}}'.encode()
    response.request = requests.Request("GET", "https://cloud.example/v2.0/ports?name=x").prepare()
    response.url = str(response.request.url)
    try:
        raise_from_response(response)
    except HttpException as error:
        return error
    raise AssertionError(status)


@pytest.mark.parametrize(
    ("status", "message", "headers", "kind"),
    [
        (403, "Quota has been met for resources: load_balancer", {}, QuotaExceeded),
        (409, "Quota exceeded for resources: ['floatingip'].", {}, QuotaExceeded),
        (409, "No more IP addresses available on network n.", {}, QuotaExceeded),
        (400, "The number of routes exceeds the maximum 30.", {}, QuotaExceeded),
        (400, "Unable to find any IP address on external network n.", {}, QuotaExceeded),
        (413, "Over limit", {}, QuotaExceeded),
        (413, "Over limit", {"Retry-After": "7"}, Throttled),
        (429, "Too many", {"Retry-After": "7"}, Throttled),
        (429, "Too many", {}, Throttled),
        (503, "Later", {"Retry-After": "7"}, Throttled),
        (503, "Away", {}, OpenStackError),
        (409, "Load Balancer x is immutable and cannot be updated.", {}, Pending),
        (412, "Revision number", {}, RetryError),
        (401, "Who?", {}, OpenStackError),
        (403, "Policy", {}, OpenStackError),
        (404, "Port x could not be found.", {}, OpenStackError),
        (500, "x" * 2000, {}, OpenStackError),
    ],
)
def test_refusals_become_the_contracts_errors(
    status: int, message: str, headers: dict[str, str], kind: type[Exception]
) -> None:
    with pytest.raises(CloudProviderError) as caught, answered():
        raise refusal(status, message, headers)
    assert type(caught.value) is kind
    assert f"GET https://cloud.example/v2.0/ports failed: {status}: {message[:20]}" in str(caught.value)
    assert len(str(caught.value)) < 700
    if isinstance(caught.value, Throttled):
        assert caught.value.retry_after == (7.0 if headers else None)


@pytest.mark.parametrize(
    "error",
    [
        keystone.EndpointNotFound("public endpoint for network service in RegionOne region not found"),
        keystone.ConnectTimeout("Request to https://x timed out"), keystone.ConnectFailure("refused"),
        keystone.SSLError("certificate"), keystone.DiscoveryFailure("none"), keystone.MissingRequiredOptions([]),
    ],
)  # fmt: skip
def test_no_answer_is_an_error_of_the_contract_too(error: Exception) -> None:
    with pytest.raises(OpenStackError) as caught, answered():
        raise error
    assert caught.value.status == 0
