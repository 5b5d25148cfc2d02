"""Scenarios R: routes between the nodes' pod networks are created, listed and deleted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from attrs import evolve

from cloudprovider.checks import answers
from cloudprovider.errors import ImplementedElsewhere, InstanceNotFound, NotImplementedByProvider
from cloudprovider.helpers.providerid import same_provider_id
from cloudprovider.ips import IPAddress, parse_ip
from cloudprovider.routes import Route, Routes
from cloudprovider.testing.conformance.base import ConformanceBase
from cloudprovider.testing.conformance.bench import name_of
from cloudprovider.testing.conformance.calls import at_once, attempt, limited, right, unwell
from cloudprovider.testing.conformance.features import Feature
from cloudprovider.testing.conformance.loadbalancerfailures import interrupted
from cloudprovider.testing.conformance.registry import scenario
from cloudprovider.testing.conformance.trial import Trial

_ROUTES = Feature.ROUTES
_SHOWN = 5  # of the routes that are listed


def _listed(trial: Trial, route: Route, cluster_name: str | None = None, routes: Routes | None = None) -> list[Route]:
    """The listed routes to the destination of this one."""
    answer: Sequence[Route] = (routes or trial.routes()).list_routes(cluster_name or trial.cluster_name)
    listed = right("list_routes", answers.routes, answer, prefixes=trial.provider.provider_id_prefixes())
    return [one for one in listed if one.destination_cidr == route.destination_cidr]


def only(trial: Trial, route: Route) -> Route:
    """The one route to this destination, as listed. Raises AssertionError for none, or several."""
    found = _listed(trial, route)
    assert found, f"the route to {route.destination_cidr} was created, and is not listed{_what_is(trial)}"
    assert len(found) == 1, f"the route to {route.destination_cidr} is listed {len(found)} times: {found!r}"
    return found[0]


def _what_is(trial: Trial) -> str:
    """What is listed instead, and what is wrong with it."""
    listed = [one.destination_cidr for one in trial.routes().list_routes(trial.cluster_name)]
    if not listed:
        return ": list_routes is empty"
    shown = [answers.destination_problem(cidr) or cidr for cidr in listed[:_SHOWN]]
    return f". Listed are: {'; '.join(shown)}{'; ...' if len(listed) > _SHOWN else ''}"


def _check_absent(trial: Trial, route: Route, cluster_name: str | None = None) -> None:
    found = _listed(trial, route, cluster_name)
    assert not found, f"the route to {route.destination_cidr} is still listed: {found!r}"


def _created(trial: Trial, route: Route, cluster_name: str | None = None, hint: str = "") -> Route:
    trial.routes().create_route(cluster_name or trial.cluster_name, hint or _hint(route), route)
    return route


def _hint(route: Route) -> str:
    return f"uid-of-{route.target_node}"


def _check_target(found: Route, route: Route) -> None:
    """The host finds the node by the provider ID that is listed, or else by the name."""
    machine, wanted = found.target_provider_id, route.target_provider_id
    # A name alone may be in another case, or the cloud's own.
    if machine and wanted:
        assert same_provider_id(machine, wanted), (
            f"the route for {route.target_node}, whose provider ID is {wanted}, is listed with the "
            f"target_provider_id {machine!r}"
        )
        return
    assert found.target_node == route.target_node, (
        f"the route for {route.target_node} is listed with the target {found.target_node!r}"
    )


class RouteScenarios(ConformanceBase):
    """`Routes`."""

    @scenario("R1", _ROUTES)
    def test_r1_a_created_route_is_listed(self, trial: Trial) -> None:
        """A created route is listed with its node's provider ID, or exact name, and its CIDR; it
        leads somewhere, and is not foreign."""
        route = _created(trial, trial.route(trial.machine()))

        def look() -> None:
            found = only(trial, route)
            _check_target(found, route)
            assert not found.blackhole, "a route to a machine that runs is listed as a blackhole"
            assert found.owned is not False, "a route that was created for this cluster is listed as owned=False"

        trial.eventually(look)

    @scenario("R2", _ROUTES)
    def test_r2_created_again_it_is_one(self, trial: Trial) -> None:
        """Created again, it is still one route."""
        route = _created(trial, trial.route(trial.machine()))
        for _ in range(2):
            again = attempt(partial(_created, trial, route))
            assert again.error is None, f"create_route {again} for a route that exists already"
        trial.eventually(partial(only, trial, route))

    @scenario("R3", _ROUTES)
    def test_r3_a_deleted_route_is_gone(self, trial: Trial) -> None:
        """A route is deleted as it was listed; deleting it again is success."""
        route = _created(trial, trial.route(trial.machine()))
        listed = trial.eventually(partial(only, trial, route))
        for which in ("", " once more"):
            outcome = attempt(partial(trial.routes().delete_route, trial.cluster_name, listed))
            assert outcome.error is None, f"delete_route{which} {outcome}"
            trial.eventually(partial(_check_absent, trial, route))

    @scenario("R4", _ROUTES)
    def test_r4_a_node_may_have_two_routes(self, trial: Trial) -> None:
        """A node with two pod CIDRs has two routes, made with one name hint: deleting one leaves
        the other."""
        node = trial.machine()
        # The host gives one hint a node: a provider that names rules by it alone overwrites the
        # first.
        first, second = (_created(trial, trial.route(node), hint="the-same-hint") for _ in range(2))

        def both() -> None:
            only(trial, first), only(trial, second)

        trial.eventually(both)
        trial.routes().delete_route(trial.cluster_name, only(trial, first))
        trial.eventually(partial(_check_absent, trial, first))
        only(trial, second)

    @scenario("R5", _ROUTES)
    def test_r5_the_hint_is_only_a_hint(self, trial: Trial) -> None:
        """Long or odd name hints are no obstacle, and two nodes' routes stay two."""
        nodes = trial.machines(2)
        # Names of nodes have dots and 253 characters; names of rules rarely may.
        hints = ("node_With.Odd/Signs", "x" * 200)
        made = [
            _created(trial, trial.route(node), hint=f"{hint}-{index}")
            for index, (node, hint) in enumerate(zip(nodes, hints, strict=True))
        ]

        def look() -> None:
            for route in made:
                _check_target(only(trial, route), route)

        trial.eventually(look)

    @scenario("R6", _ROUTES)
    def test_r6_clusters_are_kept_apart(self, trial: Trial) -> None:
        """A route of one cluster is not listed for another cluster of the account, and stays when
        that one deletes."""
        other = f"{trial.cluster_name}-2"
        node = trial.machine()
        ours, theirs = _created(trial, trial.route(node)), _created(trial, trial.route(node, cluster_name=other), other)

        def look() -> None:
            # Listed as another's it is no harm: the host leaves that alone.
            foreign = [one for one in _listed(trial, theirs) if one.owned is not False]
            assert not foreign, f"the other cluster's route is listed as this cluster's: {foreign!r}"
            only(trial, ours)

        trial.eventually(look)
        for listed in _listed(trial, theirs, other):
            trial.routes().delete_route(other, listed)
        trial.eventually(partial(_check_absent, trial, theirs, other))
        only(trial, ours)

    @scenario("R7", _ROUTES, hooks=("create_machine", "delete_machine"))
    def test_r7_a_deleted_machines_route(self, trial: Trial) -> None:
        """The route to a deleted machine is a blackhole, or gone with the machine; it can be
        deleted."""
        node = trial.new_machine()
        route = _created(trial, trial.route(node))
        trial.eventually(partial(only, trial, route))
        trial.delete(node)

        def look() -> None:
            # Clouds differ: the rule goes with its machine, or leads nowhere.
            alive = [one for one in _listed(trial, route) if not one.blackhole]
            assert not alive, f"the machine of {name_of(node)} was deleted, and its route is no blackhole: {alive!r}"

        trial.eventually(look)
        for listed in _listed(trial, route):
            trial.routes().delete_route(trial.cluster_name, listed)
        trial.eventually(partial(_check_absent, trial, route))

    @scenario("R8", _ROUTES, hooks=("outage",))
    def test_r8_an_outage_is_no_empty_table(self, trial: Trial) -> None:
        """While the cloud cannot answer, `list_routes` raises: a short list would say that routes
        are missing."""
        _created(trial, trial.route(trial.machine()))
        with trial.outage():
            unwell("list_routes", partial(trial.routes().list_routes, trial.cluster_name))

    @scenario("R9", _ROUTES, hooks=("outage",))
    def test_r9_an_outage_is_not_success(self, trial: Trial) -> None:
        """While the cloud refuses every request, creating and deleting raise."""
        routes, cluster = trial.routes(), trial.cluster_name
        present, wanted = _created(trial, trial.route(trial.machine())), trial.route(trial.machine())
        listed = trial.eventually(partial(only, trial, present))
        with trial.outage():
            for question, call in (
                ("create_route", partial(routes.create_route, cluster, _hint(wanted), wanted)),
                ("delete_route", partial(routes.delete_route, cluster, listed)),
            ):
                error = unwell(question, call)
                assert not isinstance(error, NotImplementedByProvider | ImplementedElsewhere), (
                    f"{question} raised {type(error).__name__} in an outage: the host would not try again"
                )

    @scenario("R10", _ROUTES, hooks=("outage",))
    def test_r10_interrupted_it_is_repeated(self, trial: Trial) -> None:
        """Wherever creating was interrupted, creating again succeeds with one route; the same for
        deleting."""
        route = trial.route(trial.machine())
        for _ in interrupted(trial, partial(_created, trial, route)):
            pass
        listed = trial.eventually(partial(only, trial, route))
        for _ in interrupted(trial, partial(trial.routes().delete_route, trial.cluster_name, listed), first=1):
            pass
        trial.eventually(partial(_check_absent, trial, route))

    @scenario("R11", _ROUTES)
    def test_r11_many_routes_at_once(self, trial: Trial) -> None:
        """Routes that many threads create at the same time are all there, and all go when they are
        deleted so."""
        nodes = trial.machines(2)
        wanted = [trial.route(nodes[index % 2]) for index in range(6)]
        creations = [partial(_created, trial, route, hint=f"hint-{index}") for index, route in enumerate(wanted)]
        for outcome in at_once(creations):
            outcome.get()

        def all_there() -> list[Route]:
            return [only(trial, route) for route in wanted]

        listed = trial.eventually(all_there)
        delete = trial.routes().delete_route
        for deleted in at_once([partial(delete, trial.cluster_name, route) for route in listed]):
            deleted.get()

        def none_there() -> None:
            for route in wanted:
                _check_absent(trial, route)

        trial.eventually(none_there)

    @scenario("R12", _ROUTES)
    def test_r12_a_restarted_provider_sees_it(self, trial: Trial) -> None:
        """A provider that was just started lists and deletes what the one before it created."""
        route = _created(trial, trial.route(trial.machine()))
        listed = trial.eventually(partial(only, trial, route))
        restarted = trial.bench.another_provider().routes()
        assert restarted is not None
        found = _listed(trial, route, routes=restarted)
        assert found == [listed], f"after a restart the route is listed as {found!r}; before it was {listed!r}"
        restarted.delete_route(trial.cluster_name, found[0])
        trial.eventually(partial(_check_absent, trial, route))

    @scenario("R13", _ROUTES)
    def test_r13_a_cancelled_call_creates_nothing(self, trial: Trial) -> None:
        """A call that is cancelled, or out of time, before it begins raises and creates nothing."""
        node, patience = trial.machine(), trial.lab.patience
        one, two = trial.route(node), trial.route(node)
        for what, route, outcome in (
            ("cancelled", one, limited(partial(_created, trial, one), cancelled=True, grace=patience)),
            ("out of time", two, limited(partial(_created, trial, two), deadline=0.0, grace=patience)),
        ):
            assert outcome.error is not None, f"create_route went on although its call was {what}"
            _check_absent(trial, route)

    @scenario("R14", _ROUTES, hooks=("hang",))
    def test_r14_a_hung_cloud_costs_the_deadline(self, trial: Trial) -> None:
        """While the cloud hangs, `list_routes` ends soon after its deadline, by raising."""
        outcome = trial.in_a_hang(partial(trial.routes().list_routes, trial.cluster_name))
        assert outcome.error is not None, f"list_routes {outcome} while the cloud hangs: it must raise"

    @scenario("R15", _ROUTES)
    def test_r15_what_is_not_there_is_deleted(self, trial: Trial) -> None:
        """Deleting a route that never was is success, and touches no other."""
        kept = _created(trial, trial.route(trial.machine()))
        listed = trial.eventually(partial(only, trial, kept))
        never = evolve(trial.route(trial.machine()), name=f"{listed.name}-never")
        outcome = attempt(partial(trial.routes().delete_route, trial.cluster_name, never))
        assert outcome.error is None, f"delete_route {outcome} for a route that never was"
        only(trial, kept)

    @scenario("R16", _ROUTES, hooks=("create_machine", "delete_machine"))
    def test_r16_a_node_without_a_machine_gets_no_route(self, trial: Trial) -> None:
        """Creating a route to a deleted machine raises `InstanceNotFound`, and never makes a
        blackhole."""
        node = trial.new_machine()
        trial.delete(node)
        route = trial.route(node)

        def look() -> None:
            outcome = attempt(partial(_created, trial, route))
            assert outcome.error is None or isinstance(outcome.error, InstanceNotFound), (
                f"create_route {outcome} for a node whose machine was deleted: raise InstanceNotFound"
            )
            made = [one for one in _listed(trial, route) if one.blackhole or outcome.error is not None]
            assert not made, f"create_route {outcome} for a node whose machine was deleted, and made a rule: {made!r}"

        trial.eventually(look)

    @scenario("R17", _ROUTES)
    def test_r17_a_routes_addresses_are_its_nodes(self, trial: Trial) -> None:
        """A route that is listed with addresses lists some of its node's and no others: the host
        makes a route to another address again."""
        node = trial.machine()
        route = evolve(trial.route(node), target_node_addresses=trial.addresses(node))
        _created(trial, route)

        def look() -> None:
            found = only(trial, route)
            listed = _ips(found) if found.enable_node_addresses else set()
            assert listed <= _ips(route), (
                f"the route for {name_of(node)} is listed with the addresses {_texts(listed)}; those of the node are "
                f"{_texts(_ips(route))}"
            )

        trial.eventually(look)

    @scenario("R18", _ROUTES, hooks=("create_machine", "rename_machine"))
    def test_r18_a_machine_of_another_name_keeps_its_route(self, trial: Trial) -> None:
        """A machine that got another name in the cloud keeps its node's route, and can get another:
        list and create by `target_provider_id`."""
        trial.needs_ids()
        node = trial.new_machine()
        first = _created(trial, trial.route(node))
        second = trial.route(node)
        with trial.renamed(node):
            made = attempt(partial(_created, trial, second, hint="another"))
            assert made.error is None, (
                f"create_route {made} for a machine that has another name in the cloud: find it by target_provider_id"
            )

            def look() -> None:
                for route in (first, second):
                    _check_target(only(trial, route), route)

            trial.eventually(look)


def _ips(route: Route) -> set[IPAddress]:
    """The IP addresses that it is to, or is listed with. Host names do not count."""
    found = (parse_ip(one.address) for one in route.target_node_addresses if one.type in ("InternalIP", "ExternalIP"))
    return {ip for ip in found if ip is not None}


def _texts(ips: set[IPAddress]) -> str:
    return ", ".join(sorted(map(str, ips))) or "none"
