"""What a controller runs on without the manager: begun in order, refused with a sentence, ended
whole."""

from __future__ import annotations

import pytest
from typing_extensions import override

from cloudprovider import ClientBuilder as HostClientBuilder
from cloudprovider import CloudConfig, CloudProviderError, Interface, Listers, LookAgain, StopSignal
from controllers.app import Manager, ManagerError, ManagerOptions, Options, PlanRun, hosting
from controllers.cloudcalls import CallsClosed, CloudCallOptions
from controllers.plan.clients import DryRunError
from controllers.registration.options import PlanOptions
from controllers.runtime.api import ClientBuilder, ClientConfigError


class Tiny(Interface):
    def __init__(self, *, tagged: bool = True, error: Exception | None = None) -> None:
        self.tagged = tagged
        self.error = error
        self.clients: HostClientBuilder | None = None
        self.stop: StopSignal | None = None
        self.listers: Listers | None = None

    @override
    def provider_name(self) -> str:
        return "tiny"

    @override
    def has_cluster_id(self) -> bool:
        return self.tagged

    @override
    def initialize(self, client_builder: HostClientBuilder, stop: StopSignal) -> None:
        self.clients, self.stop = client_builder, stop
        if self.error is not None:
            raise self.error

    def set_informers(self, informers: Listers) -> None:
        self.listers = informers


def test_the_provider_is_started_first_and_stopped_last(kubeconfig: str) -> None:
    tiny = Tiny()
    with hosting(tiny, kubeconfig) as host:
        assert tiny.clients is not None
        assert tiny.clients.cluster_name() == host.clients.cluster_name()
        assert isinstance(tiny.clients, LookAgain)
        assert tiny.listers is not None
        assert tiny.stop is not None
        assert not tiny.stop.is_set()
        assert host.cloud.call("anything", lambda: 7, key="x") == 7
        assert b"cloudprovider_api_requests_total" in host.metrics.text()
    assert tiny.stop.is_set()
    with pytest.raises(CallsClosed):
        host.cloud.call("anything", lambda: 7, key="x")


def test_an_exception_in_its_body_comes_through_and_ends_it_all(kubeconfig: str) -> None:
    tiny = Tiny()
    with pytest.raises(KeyError, match="mine"), hosting(tiny, kubeconfig):
        raise KeyError("mine")
    assert tiny.stop is not None
    assert tiny.stop.is_set()


def test_without_its_cluster_id_a_provider_is_not_started_unless_that_is_allowed(kubeconfig: str) -> None:
    tiny = Tiny(tagged=False)
    with pytest.raises(ManagerError, match="tiny has no cluster ID"), hosting(tiny, kubeconfig):
        pytest.fail("the body has run")
    assert tiny.clients is None
    with hosting(tiny, kubeconfig, allow_untagged_cloud=True):
        assert tiny.clients is not None


def test_calls_and_secrets_are_as_in_the_manager(kubeconfig: str) -> None:
    with hosting(Tiny(), kubeconfig) as host:
        assert host.cloud.options == Options().of(CloudCallOptions)
    config = CloudConfig("cloud.yaml", b"password: hunter-twenty-two")
    with (
        pytest.raises(ManagerError, match=r"could not be initialised: .*refused") as caught,
        hosting(Tiny(error=CloudProviderError("hunter-twenty-two was refused")), kubeconfig, config=config),
    ):
        pytest.fail("the body has run")
    assert "hunter-twenty-two" not in str(caught.value)


def test_a_cloud_that_does_not_answer_at_the_start_is_named(kubeconfig: str) -> None:
    config = CloudConfig("cloud.yaml", b"endpoint: https://api.cloud.example/v1\ntoken: hunter-twenty-two\n")
    error = CloudProviderError("no answer from https://api.cloud.example/v1 with hunter-twenty-two")
    with pytest.raises(ManagerError) as caught, hosting(Tiny(error=error), kubeconfig, config=config):
        pytest.fail("the body has run")
    assert "no answer from https://api.cloud.example/v1 with ***" in str(caught.value)


def test_without_an_api_server_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ClientConfigError), hosting(Tiny()):
        pytest.fail("the body has run")


@pytest.mark.row("M8")
def test_a_manager_of_ones_own_does_not_write_what_was_to_be_planned(kubeconfig: str) -> None:
    given = Options(ManagerOptions(cloud_provider="tiny", plan=PlanOptions(enabled=True)))
    with ClientBuilder.from_options(kubeconfig) as clients:
        with pytest.raises(ManagerError, match=r"^--dry-run: .* runs a PlanRun"):
            Manager(given, Tiny(), clients)
        PlanRun(given, Tiny(), clients)
        assert clients.guard is not None
        with pytest.raises(DryRunError):
            clients.guard("PATCH", "/api/v1/nodes/n1")
