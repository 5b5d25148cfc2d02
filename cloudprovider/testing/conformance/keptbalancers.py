"""Scenarios L47 to L51: a load balancer that was kept, and the Services that name it.

They need a provider with an annotation by which a Service names one: the hook
`adopting_annotations`."""

from __future__ import annotations

from functools import partial

from attrs import frozen
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service

from cloudprovider.testing.conformance.base import ConformanceBase
from cloudprovider.testing.conformance.calls import attempt
from cloudprovider.testing.conformance.features import Feature
from cloudprovider.testing.conformance.lab import annotated
from cloudprovider.testing.conformance.ownedloadbalancers import listed
from cloudprovider.testing.conformance.registry import scenario
from cloudprovider.testing.conformance.trial import Trial

_KEPT = Feature.LOAD_BALANCER | Feature.KEPT_LOAD_BALANCERS
_HOOKS = ("kept_annotations", "adopting_annotations")


@frozen
class _Kept:
    """A load balancer whose Service was deleted while it was to be kept."""

    name: str
    service: V1Service
    status: V1LoadBalancerStatus
    nodes: list[V1Node]


def _kept(trial: Trial) -> _Kept:
    nodes = trial.machines(1)
    service = trial.service(annotations=dict(trial.lab.kept_annotations()))
    status = trial.ensure(service, nodes)
    attempt(partial(trial.remove, service))  # what it raises is for L31
    # The scenario's end removes it: the Service does not ask to keep it any more.
    assert service.metadata is not None
    service.metadata.annotations = {}
    return _Kept(trial.balancer_name(service), service, status, nodes)


def _naming(trial: Trial, name: str, *, cluster_name: str | None = None) -> V1Service:
    """A new Service that names the load balancer."""
    return trial.service(annotations=dict(trial.lab.adopting_annotations(name)), cluster_name=cluster_name)


def _check_there(trial: Trial, service: V1Service, status: V1LoadBalancerStatus, after: str) -> None:
    found = trial.found(service)
    assert found == status, f"after {after} the load balancer has the status {found!r}; it was {status!r}"


class KeptLoadBalancerScenarios(ConformanceBase):
    """Load balancers that were kept, and are adopted."""

    @scenario("L47", _KEPT, hooks=_HOOKS)
    def test_l47_a_kept_one_is_adopted(self, trial: Trial) -> None:
        """A Service that names a kept load balancer gets it, with its address; it is kept no longer
        then."""
        kept = _kept(trial)
        taker = _naming(trial, kept.name)
        # To name one is not to have it: else its deletion would take another's load balancer along.
        absent = trial.found(taker)
        assert absent is None, f"before it is adopted get_load_balancer answers {absent!r} to the Service that names it"
        for how in ("adopted", "ensured once more"):
            status = trial.ensure(taker, kept.nodes)
            assert status == kept.status, f"{how}, its status is {status!r}; it was {kept.status!r}"
        if Feature.OWNED_LOAD_BALANCERS in trial.features:

            def look() -> None:
                found = listed(trial, taker)
                assert [one.kept for one in found] == [False], f"adopted, owned_load_balancers has {found!r}"

            trial.eventually(look)
        trial.remove(kept.service)  # its former Service has it no longer
        _check_there(trial, taker, kept.status, "the deletion of its former Service")

    @scenario("L48", _KEPT, hooks=_HOOKS)
    def test_l48_one_service_gets_it(self, trial: Trial) -> None:
        """Of two Services that name a kept load balancer one gets it; the other is refused, and
        its deletion leaves it alone."""
        kept = _kept(trial)
        first, second = _naming(trial, kept.name), _naming(trial, kept.name)
        status = trial.ensure(first, kept.nodes)
        outcome = attempt(trial.building(second, kept.nodes))
        assert outcome.error is not None, (
            f"ensure_load_balancer {outcome} for a second Service that names the same load balancer: two Services "
            "would change it in turn; call OwnedLoadBalancer.check_adoptable"
        )
        trial.remove(second)
        _check_there(trial, first, status, "the deletion of a Service that only named it")

    @scenario("L49", _KEPT, hooks=_HOOKS)
    def test_l49_another_clusters_is_not_adopted(self, trial: Trial) -> None:
        """A kept load balancer is left alone by a Service of another cluster that names it."""
        kept, other = _kept(trial), f"{trial.cluster_name}-2"
        stranger = _naming(trial, kept.name, cluster_name=other)
        outcome = attempt(partial(trial.balancers().ensure_load_balancer, other, stranger, kept.nodes))
        assert outcome.error is not None, (
            f"ensure_load_balancer {outcome} for a Service that names the load balancer of another cluster"
        )
        trial.remove(stranger, cluster_name=other)
        _check_there(trial, kept.service, kept.status, "what a Service of another cluster asked for")

    @scenario("L51", _KEPT, hooks=_HOOKS)
    def test_l51_another_namespaces_is_not_adopted(self, trial: Trial) -> None:
        """A kept load balancer is left alone by a Service of another namespace that names it."""
        kept = _kept(trial)
        stranger = _naming(trial, kept.name)
        assert stranger.metadata is not None
        stranger.metadata.namespace = "another-tenant"
        outcome = attempt(trial.building(stranger, kept.nodes))
        assert outcome.error is not None, (
            f"ensure_load_balancer {outcome} for a Service of another namespace that names the load balancer: any "
            "tenant could take another one's address; call OwnedLoadBalancer.check_adoptable"
        )
        _check_there(trial, kept.service, kept.status, "what a Service of another namespace asked for")

    @scenario("L50", _KEPT, hooks=_HOOKS)
    def test_l50_naming_it_is_not_having_it(self, trial: Trial) -> None:
        """A Service that names a kept load balancer, and is deleted before it has it, leaves it
        alone."""
        kept = _kept(trial)
        taker = _naming(trial, kept.name)
        trial.remove(taker)
        trial.remove(annotated(taker, trial.lab.kept_annotations()))
        _check_there(trial, kept.service, kept.status, "the deletion of a Service that only named it")
