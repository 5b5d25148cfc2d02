"""Scenarios L, of the targets: what belongs to a node stays a target, whatever its Service has
become, its machine does or one listing lacks; and of what a provider would refuse."""

from __future__ import annotations

from functools import partial

from kubernetes.client.models.v1_service import V1Service

from cloudprovider.errors import InvalidService, RetryError
from cloudprovider.helpers.providerid import provider_id_of
from cloudprovider.loadbalancer import LoadBalancer
from cloudprovider.testing.conformance.base import ConformanceBase
from cloudprovider.testing.conformance.calls import Outcome, attempt
from cloudprovider.testing.conformance.features import Feature
from cloudprovider.testing.conformance.lab import annotated, can
from cloudprovider.testing.conformance.loadbalancerfailures import interrupted
from cloudprovider.testing.conformance.loadbalancers import balancer_of, check_targets, spoilt
from cloudprovider.testing.conformance.registry import scenario
from cloudprovider.testing.conformance.trial import Trial

_LB = Feature.LOAD_BALANCER


def _not_yet(outcome: Outcome[None], why: str) -> bool:
    """Whether an update said that it is to be made again. AssertionError where it failed."""
    assert outcome.error is None or isinstance(outcome.error, RetryError), (
        f"update_load_balancer {outcome} {why}: set the other targets, and raise RetryError"
    )
    return outcome.error is not None


def _refused(trial: Trial, service: V1Service) -> list[tuple[str, V1Service]]:
    """The same Service as most providers would refuse it, and as this one does."""
    found = [("with a spec that most clouds refuse", spoilt(service))]
    if can(trial.lab, "refused_annotations"):
        found.append(("with annotations that are refused", annotated(service, trial.lab.refused_annotations())))
    return found


class TargetScenarios(ConformanceBase):
    """`LoadBalancer`: targets, and `check_service`."""

    @scenario("L42", _LB, hooks=("load_balancer",))
    def test_l42_targets_of_a_service_that_is_refused(self, trial: Trial) -> None:
        """For a Service that was built and would be refused now, `update_load_balancer` still sets
        the targets."""
        service, nodes = trial.standing()
        for index, (what, refused) in enumerate(_refused(trial, service)):
            targets = [nodes[index % 2]]
            outcome = attempt(partial(trial.patiently, trial.updating(refused, targets)))
            assert outcome.error is None, (
                f"update_load_balancer {outcome} for a Service {what}: read no annotations there and refuse nothing. "
                "Nodes that join would get no traffic until its owner corrects it"
            )
            trial.eventually(partial(check_targets, trial, service, targets))

    @scenario("L43", _LB, hooks=("create_machine", "stop_machine", "start_machine", "load_balancer"))
    def test_l43_a_machine_that_was_off_is_a_target(self, trial: Trial) -> None:
        """A node whose machine was switched off is a target once it runs again; `update` that
        returned is not called again for that."""
        service, (one, two) = trial.standing()
        machine = trial.new_machine()
        for before in ([one, two, machine], [one, two]):  # it was a target; it joins while it is off
            trial.patiently(trial.updating(service, before))
            trial.lab.stop_machine(machine)
            update = trial.updating(service, [one, machine])
            # A provider may set it at once, or ask to be called again: both bring it in.
            again = _not_yet(attempt(update), "for a node whose machine is off")
            trial.lab.start_machine(machine)
            if again:
                trial.patiently(update)
            trial.eventually(partial(check_targets, trial, service, [one, machine]))

    @scenario("L44", _LB, hooks=("create_machine", "unlisted", "load_balancer"))
    def test_l44_one_short_listing_takes_no_target_out(self, trial: Trial) -> None:
        """A listing that lacks a node's machine takes no target out, and the node that it lacks
        gets another call or is a target."""
        service, (one, two) = trial.standing()
        wanted = [one, two, trial.new_machine()]
        update = trial.updating(service, wanted)
        ensure = trial.building(service, wanted)

        def look() -> None:
            lost = {provider_id_of(one), provider_id_of(two)} - balancer_of(trial, service).targets
            assert not lost, f"{sorted(lost)} were taken out, as a single listing lacked their machines: keep them"

        with trial.unlisted(two):
            attempt(ensure)
            trial.eventually(look)
            again = _not_yet(attempt(update), "where a listing lacks a node's machine")
            trial.eventually(look)
        if again:
            trial.patiently(update)
        trial.eventually(partial(check_targets, trial, service, wanted))

    @scenario("L45", _LB, hooks=("outage", "load_balancer"))
    def test_l45_new_targets_go_in_first(self, trial: Trial) -> None:
        """Wherever an update that replaces all targets is interrupted, there are all the old ones
        or all the new ones."""
        service, _ = trial.standing()
        old, new = trial.machines(4)[:2], trial.machines(4)[2:]
        trial.patiently(trial.updating(service, old))
        whole = [{provider_id_of(node) for node in nodes} for nodes in (old, new)]

        def look() -> None:
            found = balancer_of(trial, service).targets
            assert any(nodes <= found for nodes in whole), (
                f"an update that was interrupted left the targets {sorted(found)} of {sorted(whole[0])}, to be "
                f"replaced by {sorted(whole[1])}: register the new ones first"
            )

        for _ in interrupted(trial, trial.updating(service, new)):
            trial.eventually(look)
            trial.patiently(trial.updating(service, old))

    @scenario("L46", _LB)
    def test_l46_what_would_be_refused(self, trial: Trial) -> None:
        """`check_service` refuses what `ensure_load_balancer` refuses, nothing that it builds, and
        does not ask the cloud."""
        balancers, nodes = trial.balancers(), trial.machines(1)
        wanted = trial.service()
        for _ in range(2):
            outcome = attempt(partial(balancers.check_service, wanted))
            assert outcome.error is None, f"check_service {outcome} for a plain Service, which is built"
            assert outcome.value is None, f"check_service returned {outcome.value!r}: raise InvalidService"
        if can(trial.lab, "outage"):
            with trial.outage():
                outcome = attempt(partial(balancers.check_service, wanted))
            assert outcome.error is None, f"check_service {outcome} in an outage: it must not ask the cloud"
        for what, refused in _refused(trial, trial.service()):
            outcome = attempt(partial(balancers.check_service, refused))
            if outcome.error is None:
                # The default refuses nothing; who writes one of their own must know their own
                # annotations.
                own = type(balancers).check_service is not LoadBalancer.check_service
                assert not (own and "annotations" in what), f"check_service returned for a Service {what}"
                continue
            assert isinstance(outcome.error, InvalidService), f"check_service {outcome}: raise InvalidService"
            built = attempt(partial(balancers.ensure_load_balancer, trial.cluster_name, refused, nodes))
            assert isinstance(built.error, InvalidService), (
                f"check_service refuses a Service {what}, and ensure_load_balancer {built}"
            )
