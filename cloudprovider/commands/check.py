"""Check one provider without a cluster: from its entry point to its cloud's answers, all problems
together.

A name and a config file come in; out goes a `Report` of steps, in the order in which a manager
takes them: entry point, config, factory, start, methods, cluster ID, initialize, capabilities,
cloud, node. A step that cannot be tried is skipped by name, with the reason. Errors are those that
the manager tells (`loading`, `checks`), cleaned as there. Nothing in the cloud is changed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define

from cloudprovider.checks.provider import capabilities_of, capability_problems, interface_problems
from cloudprovider.cloudconfig import CloudConfig
from cloudprovider.commands.asking import NoClients, in_time
from cloudprovider.commands.report import Report
from cloudprovider.errors import RegistryError
from cloudprovider.interface import Interface
from cloudprovider.internal.cleaning import conceal
from cloudprovider.internal.configsecrets import safe_cause, secret_values
from cloudprovider.internal.problem import Problem
from cloudprovider.loading.diagnostics import code_place, error_text, home_of, raised_at, signature_problem
from cloudprovider.loading.loader import Factory, described_type, load_factory, start_provider
from cloudprovider.loading.plugins import Plugin, intruders
from cloudprovider.loading.registry import Registry
from cloudprovider.threads import TooLate

if TYPE_CHECKING:
    from cloudprovider.commands.questions import Question

T = TypeVar("T")

_ENDING = 2.0  # seconds for the provider's threads to end once `stop` is set


def check(
    name: str,
    config_path: str = "",
    *,
    node: str = "",
    provider_id: str = "",
    kubeconfig: str = "",
    services: str = "",
    classes: Sequence[str] = ("",),
    offline: bool = False,
    timeout: float = 10.0,
) -> Report:
    """Check the provider of that name. With `offline` neither initialize is called nor the cloud
    asked.

    `node` names a Node whose machine runs: what would be written on it is checked and shown too. It
    is a new one, with this `provider_id` or none, or with `kubeconfig` the one in that cluster.
    `services` is a file of Services: those of these `classes` that the provider would refuse are
    problems; "" stands for no class.
    `timeout`: seconds for each call. Raises nothing for what is wrong with the provider: it is in
    the report.
    """
    report = Report(name)
    before = set(threading.enumerate())
    plugin = _entry_point(report, name)
    config, readable = _config(report, config_path)
    factory = None if plugin is None else _factory(report, plugin)
    if plugin is None or factory is None or not readable:
        if factory is not None:
            report.skipped("start", "the cloud config cannot be read")
        return report
    stop = threading.Event()
    try:
        provider = _start(report, plugin, factory, config, timeout)
        if provider is not None:
            asked = _Checked(
                report, provider, plugin, config, timeout, stop, node, provider_id, kubeconfig, services, classes
            )
            asked.run(offline=offline)
    finally:
        # Whatever happened: the provider's threads wait for it.
        stop.set()
    _threads(report, before)
    return report


def _entry_point(report: Report, name: str) -> Plugin | None:
    try:
        source = Registry().locate(name)
    except RegistryError as error:
        report.problem("entry point", error.problem)
        return None
    assert isinstance(source, Plugin), "nothing is registered in a registry of its own"
    report.distribution = source.distribution
    sdk = source.sdk_problem()
    for problem in (*intruders(), *([sdk] if sdk else [])):
        report.problem("packages", problem)
    report.ok("entry point", f"{source.line} ({source.metadata_file})")
    return source


def _config(report: Report, path: str) -> tuple[CloudConfig | None, bool]:
    if not path:
        report.ok("config", "none given (--cloud-config): the factory gets None")
        return None, True
    try:
        config = CloudConfig.read(path)
    except RegistryError as error:
        report.problem("config", error.problem)
        return None, False
    conceal(secret_values(config.data), loaded=True)  # as the manager
    report.ok("config", f"{path}, {len(config.data)} bytes")
    return config, True


def _factory(report: Report, plugin: Plugin) -> Factory | None:
    try:
        factory = load_factory(plugin)
    except RegistryError as error:
        report.problem("factory", error.problem, error.__cause__)
        return None
    if (problem := signature_problem(factory)) is not None:
        report.problem("factory", problem)
        return None
    report.ok("factory", code_place(factory) or plugin.value)
    return factory


def _start(
    report: Report, plugin: Plugin, factory: Factory, config: CloudConfig | None, timeout: float
) -> Interface | None:
    try:
        provider = in_time(lambda: start_provider(plugin.name, factory, config, plugin), timeout)
    except RegistryError as error:
        report.problem("start", error.problem, error.__cause__)
        return None
    except TooLate:
        report.problem("start", _late(f"the factory ({code_place(factory) or plugin.value})", timeout))
        return None
    report.ok("start", f"the factory returned a {type(provider).__module__}.{type(provider).__qualname__}")
    return provider


def _threads(report: Report, before: set[threading.Thread]) -> None:
    end = time.monotonic() + _ENDING
    # One that is no daemon would keep a manager's process from ending.
    mine = [one for one in threading.enumerate() if one not in before and not one.daemon]
    for one in mine:
        # One bound for all of them together.
        one.join(max(0.0, end - time.monotonic()))
    names = [one.name for one in mine if one.is_alive()]
    if names:
        report.problem(
            "threads",
            Problem(
                f"threads of the provider still run {_ENDING:g} s after stop was set: {', '.join(names)}",
                "make them daemons, or have them end when the stop signal that initialize gets is set",
            ),
        )


@define
class _Checked:
    """The steps that need a provider."""

    report: Report
    provider: Interface
    plugin: Plugin
    config: CloudConfig | None
    timeout: float
    stop: threading.Event
    node: str
    """The name of the Node to ask about; "" for none."""
    provider_id: str
    kubeconfig: str
    services: str
    classes: Sequence[str]

    def run(self, *, offline: bool) -> None:
        problems = interface_problems(self.provider, self.plugin.name)
        self._note("methods", problems, "named as its entry point; plain methods with the right parameters")
        # A provider without its methods would only repeat the same mistake in other words.
        if not any(problem.fatal for problem in problems):
            self._cluster_id()
            ready = self._initialize(offline)
            problems = capability_problems(self.provider)
            self.report.capabilities = tuple(found := capabilities_of(self.provider))
            shown = ", ".join(f"{name} ({type(one).__name__})" for name, one in found.items())
            self._note("capabilities", problems, shown)
            if self.services:
                self._check_services(found.get("load_balancer"))
            if offline:
                self.report.skipped("cloud", "not asked: --offline")
            elif not ready:
                self.report.skipped("cloud", "not asked, as initialize did not end well")
            elif any(problem.fatal for problem in problems):
                self.report.skipped("cloud", "not asked before the capabilities are right")
            else:
                # only now, as it imports the client's models
                from cloudprovider.commands.questions import NOT_ASKED, questions_for

                self._ask(questions_for(found, tuple(self.provider.provider_id_prefixes())))
                if self.node:
                    self._ask_about_node(found)
                self.report.skipped("cloud", f"not tried: {NOT_ASKED}")

    def _note(self, name: str, problems: Sequence[Problem], text: str) -> None:
        for problem in problems:
            self.report.problem(name, problem)
        if not problems:
            self.report.ok(name, text)

    def _cluster_id(self) -> None:
        answer = self._called("cluster ID", self.provider.has_cluster_id)
        if answer is True:
            self.report.ok("cluster ID", "set, or not needed")
        elif not isinstance(answer, _Failed):
            what, fix = f"has_cluster_id() returns {described_type(answer)}", "return True or False"
            if answer is False:
                what = "has_cluster_id() returns False: the manager does not start"
                fix = (
                    "set the cluster ID in the cloud config as the provider's documentation says, or run the manager "
                    "with --allow-untagged-cloud"
                )
            self.report.problem("cluster ID", Problem(what, fix))

    def _initialize(self, offline: bool) -> bool:
        """Whether the provider may be asked."""
        if offline:
            self.report.skipped("initialize", "not called: --offline")
            return True
        clients = NoClients("this is a check of the provider alone")
        count = len(self.report.problems)
        self._called("initialize", lambda: self.provider.initialize(clients, self.stop), quiet=lambda: clients.used)
        # No fault: a provider may read the cluster's objects. It cannot be asked further.
        if clients.used:
            self.report.skipped("initialize", "it needs a client of the cluster, which a check does not have")
            return False
        if len(self.report.problems) > count:
            return False
        self.report.ok("initialize", "returned")
        return True

    def _ask_about_node(self, capabilities: Mapping[str, Any]) -> None:
        from cloudprovider.commands.forecast import forecast, new_node
        from cloudprovider.commands.questions import questions_about
        from cloudprovider.helpers.addresses import NodeIPError
        from cloudprovider.instances import InstanceState

        name, kubeconfig = self.node, self.kubeconfig
        node = new_node(name, self.provider_id)
        if kubeconfig:
            from cloudprovider.commands.clusternode import NotDone, read_node

            try:
                node = in_time(lambda: read_node(kubeconfig, name, self.timeout), self.timeout)
            except (NotDone, TooLate) as error:
                why = "no answer in time" if isinstance(error, TooLate) else str(error)
                what = f"node {name} cannot be read from the cluster of {kubeconfig}: {why}"
                fix = "correct the name or the kubeconfig; without --kubeconfig the cloud is asked about the name alone"
                self.report.problem("node", Problem(what, fix))
                return
        prefixes = tuple(self.provider.provider_id_prefixes())
        same = self.provider.same_provider_id
        answers = self._ask(questions_about(node, capabilities, prefixes, self.plugin.name, same))
        metadata = answers.get("instances_metadata") or answers.get("instance_metadata")
        # Told as a problem already, or the provider cannot say it.
        if metadata is None:
            self.report.skipped("node", "what it would get is not known without right metadata of its machine")
            return
        off = answers.get("instance_shutdown") is True or answers.get("instances_state") is InstanceState.SHUTDOWN
        try:
            self.report.node = forecast(node, metadata, shut_down=off)
        except NodeIPError as error:
            self.report.problem("node", Problem(f"node {name} would stay tainted: {error}", "correct its --node-ip"))
            return
        for line in self.report.node.lines():
            self.report.ok("node", line)

    def _check_services(self, balancers: Any) -> None:
        from cloudprovider.commands.services import Unreadable, read_services, refusal

        if balancers is None:
            self.report.skipped("services", "the provider has no load balancers")
            return
        try:
            services = read_services(self.services, self.classes)
        except Unreadable as error:
            self.report.problem("services", Problem(str(error), "give a file of manifests, as kubectl prints them"))
            return
        refused = 0
        for service in services:
            said = self._called("services", partial(refusal, balancers, service))
            # It raised something else than a refusal, which stands in the report.
            if isinstance(said, _Failed):
                refused += 1
            elif isinstance(said, str) and said:
                refused += 1
                self.report.problem("services", Problem(said, "correct the Service"))
        text = f"{len(services) - refused} of {len(services)} Services with a load balancer would be built"
        self.report.ok("services", text)

    def _ask(self, questions: Iterable[Question]) -> dict[str, Any]:
        """Ask them all; the right answers by method."""
        from cloudprovider.commands.questions import NoMachine

        right: dict[str, Any] = {}
        asked = False
        for question in questions:
            asked = True
            answer = self._called("cloud", question.ask, answers=question.answers, about=question.call)
            if isinstance(answer, _Failed):
                continue
            shown, value = question.judged(answer)
            if isinstance(shown, Problem):
                self.report.problem("cloud", shown)
                # Whatever else is asked about this node has no better answer.
                if isinstance(shown, NoMachine):
                    break
            else:
                right[question.method] = value
                self.report.ok("cloud", f"{question.call}: {shown}")
        if not asked:
            self.report.skipped("cloud", "there is no question that changes nothing for what the provider offers")
        return right

    def _called(
        self,
        step: str,
        call: Callable[[], T],
        *,
        answers: tuple[type[Exception], ...] = (),
        about: str = "",
        quiet: Callable[[], bool] = lambda: False,
    ) -> T | BaseException | _Failed | None:
        """The answer, or the exception among `answers`. What else it raises becomes a problem,
        unless `quiet`."""
        try:
            return in_time(call, self.timeout)
        # By the contract these are answers, such as "there is none", and no failures.
        except answers as answer:
            return answer
        except TooLate:
            self.report.problem(step, _late(about or step, self.timeout))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - vendor boundary: it becomes a problem
            # The refused client is no fault of the provider's.
            if not quiet():
                self._raised(step, about or step, error)
        return _Failed()

    def _raised(self, step: str, what: str, error: BaseException) -> None:
        text, details = error_text(error)
        where = raised_at(error, home_of(type(self.provider).__module__))
        # First what the operator has in hand: wrong credentials are the usual cause, code is the
        # rare one.
        source = f"the cloud config {self.config.path!r}" if self.config else "the credentials (there is no config)"
        problem = Problem(
            f"{what} raised {text} ({where})",
            f"check {source}, and that the cloud can be reached from here; for a slow one give a longer --timeout; "
            f"if all that is right, {where.partition(', in ')[0] or 'the code'} of {self.plugin.distribution} is wrong",
            details,
        )
        secrets = self.config.data if self.config else None
        self.report.problem(step, problem, safe_cause(error, secrets, secret_values)[1])


def _late(what: str, seconds: float) -> Problem:
    fix = (
        "give every request a time limit, cloudprovider.helpers.time_limit(), and turn off the retries of your HTTP "
        "client, which multiply it; or check that the cloud can be reached from here"
    )
    return Problem(f"{what} has not answered after {seconds:g} s", fix)


class _Failed:
    """A call without an answer; the report says why."""
