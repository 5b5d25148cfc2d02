"""A vendor's own flags, controllers and defaults: parsed and shown as ours, mistakes of the program
told at once."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from cloudprovider import CloudConfig, Interface, register_cloud_provider
from cloudprovider.helpers import Integer, ListOf, OneOf
from cloudprovider.internal.cleaning import one_line
from controllers.catalog import CATALOG, WEBHOOKS
from controllers.cli.helptext import help_text
from controllers.cli.main import main
from controllers.cli.reference import page
from controllers.flags.parse import parse, table
from controllers.manager.provider_host import load_provider
from controllers.nodelifecycle.registration import NodeLifecycleOptions
from controllers.options import BOOL, DURATION, INT, STRING, between, cluster_name_option, option
from controllers.registration.options import ManagerOptions


@attrs.frozen(kw_only=True)
class AcmeOptions:
    region: str = option("r-1", STRING, "acme-region", "acme", "Where the machines are.")
    retries: int = option(3, INT, "acme-retries", "acme", "How often.", check=between(0, 9))
    cluster_name: str = cluster_name_option()
    token: str = option("", STRING, "acme-token", "acme", "What nobody sees.", secret=True)


GOOD = ("--cloud-provider=acme", "--leader-elect=false")
FLAGS = (AcmeOptions,)


def test_they_are_parsed_and_checked_beside_ours() -> None:
    outcome = parse([*GOOD, "--acme_region", "r-2", "--cluster-name=blue"], CATALOG, flags=FLAGS)
    assert outcome.options is not None
    assert outcome.options.of(AcmeOptions) == AcmeOptions(region="r-2", cluster_name="blue")
    assert outcome.options.manager.cluster_name == "blue"  # one flag that both share
    bad = parse([*GOOD, "--acme-retries=10", "--acme-regoin=x"], CATALOG, flags=FLAGS)
    assert bad.problems == (
        "--acme-retries=10: must be between 0 and 9",
        "--acme-regoin: there is no such flag; did you mean --acme-region?",
    )
    assert parse([*GOOD, "--acme-region=r"], CATALOG).problems[0].startswith("--acme-region: there is no such flag")


def test_kinds_of_annotations_are_kinds_of_flags_too() -> None:
    @attrs.frozen(kw_only=True)
    class Balancers:
        scheme: str = option("tcp", OneOf("tcp", "http"), "acme-scheme", "acme", "How.")
        ports: tuple[int, ...] = option((80,), ListOf(Integer(1, 65535)), "acme-ports", "acme", "Which.")

    outcome = parse([*GOOD, "--acme-scheme=http", "--acme-ports=1,2", "--acme-ports=3"], CATALOG, flags=(Balancers,))
    assert outcome.options is not None
    assert outcome.options.of(Balancers) == Balancers(scheme="http", ports=(1, 2, 3))
    assert parse([*GOOD, "--acme-scheme=udp", "--acme-ports=0"], CATALOG, flags=(Balancers,)).problems == (
        "--acme-scheme=udp: must be tcp or http",
        "--acme-ports=0: must be a whole number, from 1 to 65535",
    )
    with pytest.raises(ValueError, match=r"scheme='udp' \(--acme-scheme\): must be tcp or http"):
        Balancers(scheme="udp")
    with pytest.raises(ValueError, match="must be a whole number, from 1 to 65535"):
        Balancers(ports=(80, 0))
    text = help_text("acme-ccm", table(CATALOG, "acme", (Balancers,)))
    assert "--acme-scheme tcp|http" in text
    assert "--acme-ports INT,..." in text


def test_help_and_the_reference_page_show_them_in_a_section_of_their_own() -> None:
    text = help_text("acme-ccm", table(CATALOG, "acme", FLAGS, {"node-monitor-period": "30s"}))
    own = text[text.index("Acme flags:") :]
    assert own.index("--acme-region") < own.index("Misc flags:")
    assert "(default 30s)" in text
    written = page(CATALOG, "acme", FLAGS, {"node-monitor-period": "30s"})
    assert "### Acme\n" in written
    assert "| `--node-monitor-period` | `30s` |" in written


def test_defaults_are_read_as_if_typed_and_give_way_to_flags() -> None:
    defaults = {"node-monitor-period": "1m", "acme-region": "r-9", "leader-elect": "false", "controllers": "*,-route"}
    outcome = parse([], CATALOG, "acme", flags=FLAGS, defaults=defaults)
    assert outcome.problems == ()
    assert outcome.options is not None
    assert outcome.options.of(NodeLifecycleOptions).node_monitor_period == 60.0
    assert outcome.options.of(AcmeOptions).region == "r-9"
    assert outcome.options.manager.controllers == ("*", "-route")
    typed = parse(
        [*GOOD, "--node-monitor-period=5s", "--controllers=cloud-node"], CATALOG, flags=FLAGS, defaults=defaults
    )
    assert typed.options is not None
    assert typed.options.of(NodeLifecycleOptions).node_monitor_period == 5.0
    assert typed.options.manager.controllers == ("cloud-node",)


@attrs.frozen(kw_only=True)
class Taken:
    controllers: str = option("x", STRING, "controllers", "acme", "A flag of ours.")
    modules: str = option("", STRING, "vmodule", "acme", "One of Go's without a meaning here.")
    text: bool = option(False, BOOL, "help", "acme", "One of every program's.")
    late: str = option("", STRING, "acme-late", "generic", "In a section of ours.")
    pause: float = option(1.0, DURATION, "acme-pause", "node-route-controller", "In a controller's section.")
    zone: str = option("", STRING, "acme_zone", "acme", "A name that cannot be given.")
    level: int = option(0, INT, "acme-level", "acme", "With a shorthand of ours.", shorthand="v")


def test_every_mistake_of_the_program_is_told_at_once() -> None:
    defaults = {"node-monitor-period": "30", "vmodule": "x=1", "nope": "1", "acme-retries": "99", "acme-token": "\t"}
    with pytest.raises(ValueError, match=r"^this program's flags are wrong: ") as caught:
        table(CATALOG, "acme", (AcmeOptions, Taken), defaults | {"cloud-provider": "other"})
    told = str(caught.value).removeprefix("this program's flags are wrong: ").split("; ")
    assert told == [
        "Taken declares --controllers, which is declared differently elsewhere",
        "Taken declares --vmodule, which is declared differently elsewhere",
        "Taken declares --help, which is declared differently elsewhere",
        "Taken: --acme-late needs a section of its own, not 'generic'",
        "Taken: --acme-pause needs a section of its own, not 'node-route-controller'",
        "Taken: --acme_zone must be --acme-zone: underscores of a command line are read as dashes",
        "Taken: -v, of --acme-level, is the shorthand of --v",
        "default_provider and the default of --cloud-provider contradict each other",
        "a default for --node-monitor-period: must be a duration such as 300ms, 10s or 1m30s",
        "a default for --vmodule: there is no such flag, or none that has an effect",
        "a default for --nope: there is no such flag, or none that has an effect",
        "a default for --acme-retries: 99: must be between 0 and 9",
    ]
    with pytest.raises(ValueError, match="Taken declares --controllers"):
        main([], default_provider="acme", flags=(Taken,))


def test_two_controllers_of_one_name_are_refused_for_both_would_run() -> None:
    own = attrs.evolve(CATALOG[0], name="acme-node", aliases=("node-route-controller",))
    with pytest.raises(ValueError, match="two controllers have the name node-route-controller; to replace one"):
        table([*CATALOG, own])
    with pytest.raises(ValueError, match="two webhooks have the name persistentvolume-labeler"):
        table(CATALOG, webhooks=[*WEBHOOKS, *WEBHOOKS])


class Acme(Interface):
    def __init__(self, config: CloudConfig | None) -> None:
        self.config = config

    def provider_name(self) -> str:
        return "acme-flags"


register_cloud_provider("acme-flags", Acme)


def test_they_reach_the_factory_with_and_without_a_file(tmp_path: Path) -> None:
    own = AcmeOptions(region="r-2", token="correct-horse-battery")
    _, config = load_provider("acme-flags", "", [own])
    assert config is not None
    assert (config.path, config.data) == ("", b"")
    assert config.of(AcmeOptions) is own
    assert config.of(ManagerOptions) == ManagerOptions()  # of another program: the defaults
    assert "correct-horse" not in repr(config)
    assert "correct-horse" not in one_line("the cloud said: correct-horse-battery is wrong")
    (tmp_path / "acme.yaml").write_text("a: b")
    _, config = load_provider("acme-flags", str(tmp_path / "acme.yaml"), [own])
    assert config is not None
    assert config.data == b"a: b"
    (tmp_path / "acme.yaml").write_text("a: c")
    again = config.read_again()
    assert (again.data, again.of(AcmeOptions)) == (b"a: c", own)
    assert load_provider("acme-flags", "")[1] is None
