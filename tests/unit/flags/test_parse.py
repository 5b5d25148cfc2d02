"""argv to options: the table's completeness, defaults, every rejection, and all problems at
once."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from controllers.catalog import CATALOG
from controllers.cloudcalls import CloudCallOptions
from controllers.endpoints.options import ServingOptions
from controllers.flags.ignored import GATES, IGNORED, Ignored
from controllers.flags.parse import Outcome, option_classes, parse, table
from controllers.node.registration import CloudNodeOptions
from controllers.options.declare import flags_of
from controllers.options.podnetwork import RouteSwitches
from controllers.registration.entry import Context, Controller, ControllerEntry, enabled
from controllers.registration.options import (
    SECTIONS,
    LeaderElectionOptions,
    LeaderMigrationOptions,
    ManagerOptions,
    Options,
    PlanOptions,
    split_address,
)
from controllers.route.registration import RouteOptions
from tests.support.gomanager import GO_FLAGS

GOOD = ("--cloud-provider=fake", "--leader-elect=false")


def read(*argv: str) -> Outcome:
    return parse(argv, CATALOG)


def options(*argv: str) -> Options:
    outcome = read(*GOOD, *argv)
    assert outcome.problems == ()
    assert outcome.options is not None
    return outcome.options


def never(_context: Context) -> Controller:
    raise AssertionError("nothing is built while flags are read")


def test_every_flag_is_documented_its_default_is_valid_and_all_of_the_go_programs_are_taken() -> None:
    assert set(GO_FLAGS) - {flag.name for flag in table(CATALOG)} == set()
    assert sorted(row.shorthand for row in table(CATALOG) if row.shorthand) == ["h", "v"]
    sections = {*SECTIONS, *(entry.name for entry in CATALOG)}
    wrong = [
        flag.name
        for flag in table(CATALOG)
        if not flag.help.endswith(".")
        or flag.section not in sections
        or (flag.check is not None and flag.check(flag.default) is not None)
        or flag.kind.parse(flag.kind.show(flag.default)) != flag.default
    ]
    assert not wrong


def test_defaults_and_open_paths_need_no_slash_as_in_go() -> None:
    found = options("--authorization-always-allow-paths=healthz,metrics*")
    assert found.of(ServingOptions).authorization_always_allow_paths == ("healthz", "metrics*")
    assert found.manager == ManagerOptions(
        cloud_provider="fake", leader_election=LeaderElectionOptions(leader_elect=False)
    )
    assert found.of(CloudNodeOptions) == CloudNodeOptions()
    assert found.manager.cluster_name == "kubernetes"
    assert found.manager.kube_api_qps == 0


@pytest.mark.row("M4")
@pytest.mark.parametrize(
    ("argument", "complaint"),
    [
        ("--concurrent-node-syncs=0", "must be between 1 and 1000"),
        ("--concurrent-node-syncs=-1", "must be between 1 and 1000"),
        ("--concurrent-node-status-updates=-1", "must be between 0 and 1000"),
        ("--node-status-update-frequency=0", "must be greater than 0"),
        ("--node-status-update-frequency=-5m", "must be greater than 0"),
        ("--cloud-api-timeout=0s", "must be greater than 0"),
        ("--cloud-api-concurrency=0", "must be between 1 and 1000"),
        ("--cloud-api-qps=-1", "must not be negative; 0 means no limit"),
        ("--kube-api-burst=-1", "must not be negative; 0 means no limit"),
        ("--cloud-api-burst=30", "has no effect without --cloud-api-qps"),
        ("--kube-api-content-type=text/html", "must be application/json or application/vnd.kubernetes.protobuf"),
        ("--controller-start-interval=-1s", "must not be negative"),
        ("--min-resync-period=12", "must be a duration such as 300ms, 10s or 1m30s"),
        ("--webhook-secure-port=70000", "must be between 0 and 65535"),
        ("--webhook-secure-port=https", "must be a whole number"),
        ("--webhook-bind-address=localhost", "must be an IP address, such as 0.0.0.0 or ::"),
        ("--permit-port-sharing=maybe", "must be true or false"),
        ("--tls-sni-cert-key=only-one", "must look like CERTIFICATE,KEY or CERTIFICATE,KEY:NAME"),
        ("--tls-curve-preferences=x25519", "must be a whole number"),
        ("--vmodule=loud", "must look like PATTERN=N,..."),
        ("--log-text-info-buffer-size=lots", "must look like 512, 4Ki or 1M"),
        (
            "--webhook-tls-min-version=1.2",
            "must be VersionTLS10 or VersionTLS11 or VersionTLS12 or VersionTLS13",
        ),
        (
            "--feature-gates=Nope",
            "must be NAME=true or NAME=false, joined by commas; Nope has no value",
        ),
        ("--feature-gates=WatchList=maybe", "the value of WatchList must be true or false"),
        ("--feature-gates=Nope=true", "there is no feature gate 'Nope'"),
        ("--feature-gates=DeclarativeValidation=false", "DeclarativeValidation can only be true"),
        ("--logging-format=xml", "must be text or json"),
        ("--cluster-name=", "must not be empty"),
        ("-v=-1", "must be between 0 and 10"),
        ("--master=10.0.0.1:6443", "must be a URL such as https://10.0.0.1:6443, without user or password"),
        ("--master=https://", "must be a URL such as https://10.0.0.1:6443, without user or password"),
        ("--master=https://h:99999", "must be a URL such as https://10.0.0.1:6443, without user or password"),
        ("--health-bind-address=8080", "must be IP:PORT, such as 127.0.0.1:10259, [::1]:10259 or :10259"),
        ("--health-bind-address=h:http", "must be IP:PORT, such as 127.0.0.1:10259, [::1]:10259 or :10259"),
        ("--health-bind-address=::1:80", "must be IP:PORT, such as 127.0.0.1:10259, [::1]:10259 or :10259"),
        ("--health-bind-address=1.2.3.4:70000", "must be IP:PORT, such as 127.0.0.1:10259, [::1]:10259 or :10259"),
        ("--version=v1.2.3", "must be true or false or raw"),
    ],
)
def test_a_bad_value_is_rejected_with_its_reason(argument: str, complaint: str) -> None:
    outcome = read(*GOOD, argument)
    assert outcome.options is None
    assert outcome.problems == (f"{argument}: {complaint}",)


def test_a_burst_without_a_limit_as_a_manifest_for_go_may_have_it_is_a_warning() -> None:
    outcome = read(*GOOD, "--kube-api-burst=30")
    assert outcome.problems == ()
    assert outcome.warnings == ("--kube-api-burst=30: has no effect without --kube-api-qps: there is no limit",)
    assert read(*GOOD, "--kube-api-burst=30", "--kube-api-qps=20").warnings == ()


@pytest.mark.parametrize("row", IGNORED, ids=lambda row: row.flag.name)
def test_a_flag_without_effect_is_told_once_and_only_where_it_asks_for_something_else(row: Ignored) -> None:
    name, kind = row.flag.name, row.flag.kind
    anyway = f"--{name}={kind.show(row.flag.default)}"
    assert read(*GOOD, anyway).warnings == ()
    other = OTHER.get(name) or {"true": "false", "false": "true"}.get(kind.show(row.flag.default), "x")
    outcome = read(*GOOD, f"--{name}={other}", f"--{name}={other}")
    assert outcome.problems == ()
    [warning] = outcome.warnings
    assert warning.startswith(f"--{name}")
    assert "has no effect: " in warning
    assert read(*GOOD, f"--{name}={other}", anyway).warnings == () or kind.repeated  # the last one counts


OTHER = {
    "http2-max-streams-per-connection": "250",
    "tls-curve-preferences": "29,23",
    "tls-sni-cert-key": "/tls.crt,/tls.key:*.example.com",
    "webhook-tls-curve-preferences": "29",
    "webhook-tls-sni-cert-key": "/tls.crt,/tls.key",
    "min-resync-period": "12h",
    "node-sync-period": "1m",
    "log-flush-frequency": "5s",
    "log-text-info-buffer-size": "4Ki",
    "vmodule": "node=4,service=6",
    "feature-gates": "AllBeta=true",
}


def test_the_warning_about_feature_gates_names_those_that_were_given_another_value() -> None:
    gates = "--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation"
    assert read(*GOOD, f"{gates}=true").warnings == ()
    outcome = read(*GOOD, f"{gates}=false, CloudControllerManagerWebhook=true", "--feature-gates=OpenAPIEnums=true")
    assert outcome.warnings == (
        "--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=false,CloudControllerMan...: has no "
        "effect: CloudControllerManagerWatchBasedRoutesReconciliation (changes of nodes are handled at once, and all "
        "routes compared every --route-reconciliation-period), OpenAPIEnums (about kube-apiserver)",
    )


def test_every_gate_has_a_meaning_and_none_is_fixed_to_what_is_not_done() -> None:
    for name, gate in GATES.items():
        assert gate.meaning, name
        assert gate.done is None or gate.fixed is None, name


def test_the_election_is_on_and_its_flags_reach_it() -> None:
    assert LeaderElectionOptions().leader_elect
    found = parse(
        [
            "--cloud-provider=fake",
            "--leader-elect-lease-duration=1m",
            "--leader-elect-renew-deadline=40s",
            "--leader-elect-retry-period=5s",
            "--leader-elect-resource-lock=leases",
            "--leader-elect-resource-name=blue",
            "--leader-elect-resource-namespace=clouds",
        ],
        CATALOG,
    )
    assert found.options is not None
    settings = found.options.manager.leader_election.settings()
    assert (settings.lease, settings.lease_duration) == ("clouds/blue", 60.0)
    assert (settings.renew_deadline, settings.retry_period) == (40.0, 5.0)
    assert settings.identity != found.options.manager.leader_election.settings().identity


@pytest.mark.row("M4")
def test_durations_of_the_election_are_checked_together_and_only_where_there_is_one() -> None:
    flags = {"lease-duration": "10s", "renew-deadline": "10s", "retry-period": "9s"}
    durations = [f"--leader-elect-{name}={value}" for name, value in flags.items()]
    assert read("--cloud-provider=fake", *durations).problems == (
        "--leader-elect-lease-duration=10s: must be greater than the renew deadline",
        "--leader-elect-renew-deadline=10s: must be greater than the retry period times 1.2",
    )
    assert read(*GOOD, *durations).problems == ()
    zero = [flag.partition("=")[0] + "=0s" for flag in durations]
    assert len(read("--cloud-provider=fake", *zero).problems) == 3
    assert read("--cloud-provider=fake", "--leader-elect-resource-lock=endpoints").problems == (
        "--leader-elect-resource-lock=endpoints: must be leases",
    )


@pytest.mark.row("M4")
@pytest.mark.parametrize("name", ["my lease", "a/b", "a?b", "Blue", "bl\u00e4u", "-a", "a" * 254])
def test_a_name_that_no_lease_can_have_is_a_problem_of_the_flag(name: str) -> None:
    [problem] = read("--cloud-provider=fake", f"--leader-elect-resource-name={name}").problems
    assert problem.startswith("--leader-elect-resource-name=")
    assert problem.endswith(": must be small letters, digits, - and ., with a letter or digit at both ends")
    [problem] = read("--cloud-provider=fake", f"--leader-elect-resource-namespace={name}").problems
    assert problem.startswith("--leader-elect-resource-namespace=")
    assert read("--cloud-provider=fake", "--leader-elect-resource-name=blue.v1-a").problems == ()
    assert read(*GOOD, "--leader-elect=false", f"--leader-elect-resource-name={name}").problems == ()


@pytest.mark.row("O24")
@pytest.mark.parametrize(
    ("argv", "warning"),
    [
        ("--leader-migration-config=/x", "--leader-migration-config: has no effect without --enable-leader-migration"),
        (
            "--leader-elect=false --leader-elect-resource-lock=endpoints",
            "--leader-elect-resource-lock: has no effect with --leader-elect=false",
        ),
        (
            "--leader-elect=false --enable-leader-migration",
            "--enable-leader-migration: has no effect with --leader-elect=false: nothing keeps another manager from "
            "running the same controllers",
        ),
        ("--bind-address=", "--bind-address: is empty, so its default counts: 0.0.0.0"),
        ("--webhook-bind-address=", "--webhook-bind-address: is empty, so its default counts: 0.0.0.0"),
        (
            "--kube-api-content-type=",
            "--kube-api-content-type: is empty, so its default counts: application/vnd.kubernetes.protobuf",
        ),
        ("--concurrent-service-syncs=010", "--concurrent-service-syncs=010: is read as octal, as in Go: 8"),
        (
            "--controllers=service,-service",
            "--controllers: service-lb-controller is both asked for and left out; the first word counts, as in Go",
        ),
    ],
)
def test_command_lines_that_go_runs_with_are_taken_with_a_warning(argv: str, warning: str) -> None:
    found = read(*GOOD, *argv.split())
    assert (found.problems, found.warnings) == ((), (warning,))


@pytest.mark.row("O24")
def test_what_such_command_lines_mean() -> None:
    found = read(*GOOD, "--kube-api-qps=-1", "--bind-address=", "--concurrent-service-syncs=010", "--secure-port=00")
    assert found.options is not None
    assert found.options.manager.kube_api_qps == -1.0
    assert found.values["bind-address"] == "0.0.0.0"
    assert (found.values["concurrent-service-syncs"], found.values["secure-port"]) == (8, 0)
    assert len(found.warnings) == 2, "-1 and 00 mean what they say"
    for words, on in (("service,-service", True), ("-service-lb-controller,*,service", False)):
        running = {entry.name for entry in enabled(words.split(","), CATALOG)}
        assert ("service-lb-controller" in running) is on
    assert read(*GOOD, "--authorization-always-allow-paths=").values["authorization-always-allow-paths"] == ()
    assert read(*GOOD, "--cluster-name=").problems == ("--cluster-name=: must not be empty",), "it says whose what is"


@pytest.mark.row("O18")
@pytest.mark.parametrize(
    ("flag", "successor"),
    [
        ("--address=127.0.0.1", "HTTPS: --bind-address, plain HTTP for probes and metrics: --health-bind-address="),
        ("--port=0", "HTTPS: --secure-port, plain HTTP for probes and metrics: --health-bind-address="),
        ("--logtostderr=false", "log lines go to standard error alone"),
        ("--log_file=/var/log/ccm.log", "log lines go to standard error alone"),
        ("--skip-headers", "--logging-format=json"),
        ("--node-deletion-confirmations=3", "after two answers, a --node-monitor-period apart"),
        ("--node-deletion-trickle=10s", "above --node-deletion-limit one node is deleted a minute"),
        ("--node-deletion-witnesses=10", "up to thirty Ready nodes"),
    ],
)
def test_flags_that_were_removed_are_refused_with_what_takes_their_place(flag: str, successor: str) -> None:
    [problem] = read(*GOOD, flag).problems
    assert problem.startswith(f"{flag.partition('=')[0]}: this flag was removed; leave it out")
    assert successor in problem


def test_the_provider_must_be_named_unless_the_program_has_a_default() -> None:
    [problem] = read().problems
    assert problem.startswith("--cloud-provider: must be given")
    own = parse(["--leader-elect=false"], CATALOG, default_provider="acme")
    assert own.options is not None
    assert own.options.manager.cloud_provider == "acme"
    other = parse([*GOOD], CATALOG, default_provider="acme")
    assert other.values["cloud-provider"] == "fake"


@pytest.mark.row("M4")
def test_all_problems_of_all_flags_come_at_once() -> None:
    outcome = read(
        "--concurrent-node-syncs=0",
        "--leader-migration-config=x",
        "--controllers=nope,-service,service",
        "--cloud-api-burst=5",
        "--leader-elect-lease-duration=5s",
        "stray",
        "--no-such-flag",
    )
    text = "\n".join(outcome.problems)
    assert len(outcome.problems) == 7
    for part in (
        "--concurrent-node-syncs=0",
        "'nope'",
        "--cloud-api-burst=5",
        "--no-such-flag",
        "stray",
        "--cloud-provider: must be given",
        "--leader-elect-lease-duration=5s: must be greater than the renew deadline",
    ):
        assert part in text
    assert outcome.options is None


def test_a_flag_that_is_ill_by_itself_is_complained_about_once() -> None:
    assert len(read("--cloud-provider=fake", "--leader-elect=maybe").problems) == 1
    assert len(read("--leader-elect=false", "--cloud-provider").problems) == 1
    assert len(read(*GOOD, "--cloud-api-qps=x", "--cloud-api-burst=5").problems) == 1


ONLY_NODE = tuple(entry for entry in CATALOG if entry.name == "cloud-node-controller")
EXTRA = ControllerEntry(name="extra-controller", aliases=("extra",), construct=never, on_by_default=False)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("*", ["cloud-node-controller"]),
        ("cloud-node", ["cloud-node-controller"]),
        ("cloud-node-controller", ["cloud-node-controller"]),
        ("*,extra", ["cloud-node-controller", "extra-controller"]),
        ("extra,*", ["cloud-node-controller", "extra-controller"]),
        ("extra", ["extra-controller"]),
        ("*,-cloud-node,extra-controller", ["extra-controller"]),
        ("extra,-cloud-node-controller,*", ["extra-controller"]),
    ],
)
def test_controllers_are_chosen_by_name_alias_and_star(words: str, expected: list[str]) -> None:
    catalog = (*ONLY_NODE, EXTRA)
    outcome = parse([*GOOD, f"--controllers={words}"], catalog)
    assert outcome.options is not None
    assert [entry.name for entry in enabled(outcome.options.manager.controllers, catalog)] == expected


@pytest.mark.row("M4")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("nope", "no controller is called 'nope'; known: cloud-node-controller (cloud-node)"),
        ("*,-nope", "no controller is called 'nope'; known: cloud-node-controller (cloud-node)"),
        ("*,", "no controller is called ''; known: cloud-node-controller (cloud-node)"),
        ("-cloud-node", "no controller is left to run; known: cloud-node-controller (cloud-node)"),
        ("*,-cloud-node-controller", "no controller is left to run; known: cloud-node-controller (cloud-node)"),
        ("", "no controller is left to run; known: cloud-node-controller (cloud-node)"),
        (
            "-cloud-node,cloud-node-controller",
            "no controller is left to run; known: cloud-node-controller (cloud-node)",
        ),
    ],
)
def test_a_bad_list_of_controllers_is_rejected_with_the_known_names(words: str, complaint: str) -> None:
    assert parse([*GOOD, f"--controllers={words}"], ONLY_NODE).problems == (f"--controllers: {complaint}",)


def test_the_go_programs_controllers_are_known_by_name() -> None:
    known = {
        "cloud-node-controller": {"cloud-node"},
        "service-lb-controller": {"service"},
        "node-route-controller": {"route"},
        "cloud-node-lifecycle-controller": {"cloud-node-lifecycle"},
    }
    assert known.items() <= {entry.name: set(entry.aliases) for entry in CATALOG}.items()


@pytest.mark.row("M4")
def test_options_built_by_a_program_are_checked_too() -> None:
    wrong = r"concurrent_node_syncs=0 \(--concurrent-node-syncs\): must be between 1 and 1000"
    with pytest.raises(ValueError, match=wrong):
        CloudNodeOptions(concurrent_node_syncs=0)
    with pytest.raises(ValueError, match=r"timeout=-1s \(--cloud-api-timeout\): must be greater than 0"):
        CloudCallOptions(timeout=-1.0)


def test_options_cannot_be_changed_after_they_are_built() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        CloudNodeOptions().concurrent_node_syncs = 3  # type: ignore[misc]  # that is the point
    kinds: list[type[Any]] = [ManagerOptions, *option_classes(CATALOG)]
    for kind in kinds:
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(kind(), attrs.fields(kind)[0].name, None)
    groups = (LeaderElectionOptions, LeaderMigrationOptions, PlanOptions)
    nested = sum(len(attrs.fields(group)) - 1 for group in groups)
    assert len(list(flags_of(ManagerOptions))) == len(attrs.fields(ManagerOptions)) + nested


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("[::1]:0", ("::1", 0)),
        (":9", ("", 9)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert split_address(text) == address


def test_the_routes_flags_are_gos_but_for_the_period_and_several_ranges_keep_their_order() -> None:
    switches, flags = options().of(RouteSwitches), options().of(RouteOptions)
    assert (switches.allocate_node_cidrs, switches.configure_cloud_routes, flags.cluster_cidrs) == (False, True, ())
    assert flags.route_reconciliation_period == 300.0
    cidrs = ["fd00::/48", "10.0.0.0/16", "10.8.0.0/16", "fd01::/48"]
    given = options("--allocate-node-cidrs", f"--cluster-cidr={','.join(cidrs)}", "--route-reconciliation-period=10s")
    assert given.of(RouteOptions).route_reconciliation_period == 10.0
    assert [str(net) for net in given.of(RouteOptions).cluster_cidrs] == cidrs


@pytest.mark.row("M4")
@pytest.mark.parametrize(
    "value",
    [
        "10.244.0.0",
        "10.0.0.0/8,10.244.0.0/16",
        "10.0.0.0/8,fd00::/56,fd00::/56",
        "10.244.0.0/16,fd00::/56,10.0.0.0/8",
        "10.0.0.0/8,",
    ],
)
def test_a_bad_cluster_cidr_is_rejected(value: str) -> None:
    (problem,) = read(*GOOD, f"--cluster-cidr={value}").problems
    assert problem.startswith(f"--cluster-cidr={value}: ")


def test_all_pod_ranges_that_overlap_are_named_with_the_one_to_leave_out() -> None:
    value = "10.0.0.0/16,10.0.4.0/22,10.1.0.0/16,fd00::/48,fd00::/48,10.0.0.0/15"
    (problem,) = read(*GOOD, f"--cluster-cidr={value}").problems
    assert problem == (
        f"--cluster-cidr={value}: 10.0.0.0/16 and 10.0.4.0/22 overlap: leave out 10.0.4.0/22; "
        "10.0.0.0/16 and 10.0.0.0/15 overlap: leave out 10.0.0.0/16; "
        "10.0.4.0/22 and 10.0.0.0/15 overlap: leave out 10.0.4.0/22; "
        "10.1.0.0/16 and 10.0.0.0/15 overlap: leave out 10.1.0.0/16; "
        "fd00::/48 is given twice"
    )
