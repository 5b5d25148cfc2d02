"""Time limits, errors, credentials and configuration: what stands between boto3 and the
contract."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from aws_provider.clients import Clients
from aws_provider.config import Config
from aws_provider.errors import AWSError, answered
from aws_provider.provider import AWS, new_provider
from botocore.exceptions import ClientError, NoCredentialsError
from botocore.stub import Stubber
from conftest import CLUSTER, REGION, Account, node
from typing_extensions import override

from cloudprovider import (
    Call,
    CallCancelled,
    CallDeadlineExceeded,
    CloudConfig,
    CloudProviderError,
    Throttled,
    call_scope,
)
from cloudprovider.errors import InvalidConfig
from cloudprovider.testing.conformance.bench import NoCluster

NODE = node("node-1", f"aws:///{REGION}a/i-0123456789abcdef0")


def provider() -> AWS:
    return AWS(Config(cluster=CLUSTER), Clients(REGION))


# Time limits


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An endpoint that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        yield


@pytest.mark.parametrize("seconds", [0.5, 1.2])
def test_a_call_ends_before_its_deadline_when_aws_is_silent(silent: None, seconds: float) -> None:
    cloud = provider()
    with call_scope(Call(deadline=1e9, monotonic=lambda: 1e9 - seconds)):
        cloud.clients.ec2  # noqa: B018  made outside of the time that is measured
    begin = time.monotonic()
    with call_scope(Call(deadline=begin + seconds)), pytest.raises(CloudProviderError) as raised:
        cloud.instances_v2().instance_exists(NODE)
    assert "did not answer" in str(raised.value) or isinstance(raised.value, CallDeadlineExceeded)
    assert time.monotonic() - begin < seconds + 3  # a busy machine; without that limit they wait for 5 s


def test_a_page_that_could_not_end_in_time_is_not_asked_for(account: Account, clients: Clients) -> None:
    account.launch()
    now = [100.0]
    with call_scope(Call(deadline=110.0, monotonic=lambda: now[0])):
        pages = iter(clients.ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 5}))
        now[0] = 107.0  # the limit was 4 s
        with pytest.raises(CallDeadlineExceeded, match=r"3\.0 s are left"):
            next(pages)


def test_a_call_that_is_over_sends_nothing(clients: Clients) -> None:
    stop = threading.Event()
    stop.set()
    for call, error in [(Call(cancelled=stop), CallCancelled), (Call(deadline=1.0), CallDeadlineExceeded)]:
        with call_scope(call), pytest.raises(error):
            clients.ec2  # noqa: B018


def test_clients_are_kept_and_never_try_twice(clients: Clients) -> None:
    assert clients.ec2 is clients.ec2
    config = clients.ec2.meta.config
    assert config.connect_timeout + config.read_timeout == 32  # type: ignore[attr-defined]
    assert config.retries == {"total_max_attempts": 1, "mode": "standard"}  # type: ignore[attr-defined]
    with call_scope(Call(deadline=time.monotonic() + 10)):
        assert clients.elb.meta.config.read_timeout == 3  # type: ignore[attr-defined]


# Errors


def refusal(code: str, message: str = "no", status: int = 400, headers: dict[str, str] | None = None) -> ClientError:
    response = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"RequestId": "r-1", "HTTPStatusCode": status, "HTTPHeaders": headers or {}},
    }
    return ClientError(response, "DescribeInstances")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "code", ["Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequestsException"]
)
def test_throttling(code: str) -> None:
    with pytest.raises(Throttled, match=code) as raised, answered():
        raise refusal(code, headers={"retry-after": "7"})
    assert raised.value.retry_after == 7.0


@pytest.mark.parametrize("code", ["AuthFailure", "ExpiredToken", "SignatureDoesNotMatch"])
def test_refused_credentials_say_what_to_check_and_show_nothing(code: str) -> None:
    with pytest.raises(AWSError, match="AWS_PROFILE") as raised, answered():
        raise refusal(code, "canonical string x-amz-security-token:SECRET", 403)
    assert "SECRET" not in str(raised.value)
    assert raised.value.code == code


def test_a_missing_right_names_the_call_and_the_policy() -> None:
    with pytest.raises(AWSError, match=r"does not allow DescribeInstances .*iam-policy.json") as raised, answered():
        raise refusal(
            "UnauthorizedOperation", "You are not authorized. Encoded authorization failure message: AbC123", 403
        )
    assert "AbC123" not in str(raised.value)


def test_other_refusals_keep_code_message_and_request() -> None:
    with pytest.raises(AWSError, match=r"DescribeInstances failed: InternalError: no \(request r-1\)"), answered():
        raise refusal("InternalError", status=500)


def test_no_credentials() -> None:
    with pytest.raises(CloudProviderError, match="there are no credentials for AWS"), answered():
        raise NoCredentialsError


def test_errors_of_the_contract_pass() -> None:
    with pytest.raises(CallDeadlineExceeded), answered():
        raise CallDeadlineExceeded("over")


def test_the_start_fails_when_aws_refuses(account: Account, clients: Clients) -> None:
    cloud = AWS(Config(cluster=CLUSTER), clients)
    with Stubber(cloud.clients.ec2) as stub:
        stub.add_client_error("describe_availability_zones", "AuthFailure", http_status_code=401)
        with pytest.raises(AWSError, match="did not accept the credentials"):
            cloud.initialize(NoCluster(), threading.Event())
    cloud.initialize(NoCluster(), threading.Event())


@pytest.mark.row("P3")
def test_two_names_of_one_cluster_are_refused_at_the_start(account: Account, clients: Clients) -> None:
    class Green(NoCluster):
        @override
        def cluster_name(self) -> str:
            return "green"

    with pytest.raises(CloudProviderError, match="'green' by --cluster-name and 'blue' by the cloud config"):
        AWS(Config(cluster=CLUSTER), clients).initialize(Green(), threading.Event())
    AWS(Config(cluster="green"), clients).initialize(Green(), threading.Event())


# Secrets


def test_no_secret_in_repr_or_in_the_most_talkative_log(account: Account, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    cloud = provider()
    cloud.instances_v2().instance_exists(NODE)
    shown = caplog.text + repr(cloud) + repr(cloud.clients) + repr(vars(cloud))
    assert "wJalrXUtnFEMI" not in shown
    assert "FwoGZXIvYXdz" not in shown


# Configuration


def config(text: str) -> CloudConfig:
    return CloudConfig(path="aws.yaml", data=text.encode())


def test_file_and_environment() -> None:
    settings = Config.load(config("cluster: green\nmanage_security_groups: false"), environ={"AWS_VPC": "vpc-1"})
    assert settings == Config(cluster="green", vpc="vpc-1", manage_security_groups=False)
    found = Config.load(None, environ={"AWS_CLUSTER": "blue", "AWS_REGION": REGION})
    assert found == Config(cluster="blue", region=REGION)


def test_all_mistakes_at_once() -> None:
    text = "colour: red\nregion: [7]\nnode_ip_families: [ipv4]\nmanage_security_groups: maybe"
    with pytest.raises(InvalidConfig) as raised:
        Config.load(config(text), environ={})
    for word in ("colour", "region", "cluster: is required", "node_ip_families", "manage_security_groups"):
        assert word in str(raised.value)


def test_the_region_comes_from_file_or_environment_or_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION")
    made = new_provider(config(f"cluster: {CLUSTER}\nregion: us-east-1"))
    assert isinstance(made, AWS)
    assert made.clients.region == "us-east-1"
    with pytest.raises(InvalidConfig, match="the region is not set"):
        new_provider(config(f"cluster: {CLUSTER}"))
