"""The registry: names in, providers out, and an error of its own for everything that goes wrong.

Installed plugins are real here: distributions with metadata, entry points and modules, written into
a directory on sys.path.
"""

from __future__ import annotations

import logging
import sys
import textwrap
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import cloudprovider
from cloudprovider import (
    CloudConfig,
    ConfigMissing,
    ConfigUnreadable,
    DuplicateProvider,
    Interface,
    InvalidProviderName,
    ProviderFactoryError,
    ProviderLoadError,
    ProviderTypeError,
    RegistryError,
    UnknownProvider,
)
from cloudprovider.internal.cleaning import of_process
from cloudprovider.loading.plugins import find_plugins
from cloudprovider.loading.registry import Registry
from tests.support.plugins import write_distribution

GOOD = """
    from cloudprovider import Interface

    class Cloud(Interface):
        def __init__(self, config):
            self.config = config

        def provider_name(self):
            return "good"

    def new_provider(config):
        return Cloud(config)
"""


class Plain(Interface):
    def __init__(self, config: CloudConfig | None = None) -> None:
        self.config = config

    def provider_name(self) -> str:
        return "plain"


def other(config: CloudConfig | None) -> Interface:
    return Plain(config)


class Maker:
    def make(self, config: CloudConfig | None) -> Interface:
        return Plain(config)


Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a distribution: name, its entry points ("name = module:object"), the text of its
    modules."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(name: str, *entries: str, version: str = "1.0", metadata: bool = True, **modules: str) -> None:
        write_distribution(tmp_path, name, *entries, version=version, metadata=metadata, **modules)
        for module in modules:
            monkeypatch.delitem(sys.modules, module, raising=False)

    return install


def registry() -> Registry:
    """A registry of its own, over what is really installed."""
    return Registry(find_plugins)


# Registering


def test_a_registered_factory_makes_a_new_provider_every_time() -> None:
    ours = registry()
    ours.register("plain", Plain)
    config = CloudConfig(path="", data=b"x")
    first, second = ours.get("plain", config), ours.get("plain")
    assert isinstance(first, Plain)
    assert isinstance(second, Plain)
    assert first is not second
    assert (first.config, second.config) == (config, None)
    assert "plain" in ours.names()


def test_the_same_factory_again_changes_nothing_and_another_under_its_name_is_refused() -> None:
    ours, maker = registry(), Maker()
    for _ in range(2):
        ours.register("plain", Plain)
        ours.register("made", maker.make)  # another object each time, and equal
    assert isinstance(ours.get("made"), Plain)
    with pytest.raises(DuplicateProvider, match=r"'plain' is registered twice.*Plain.*\.other\. Fix:"):
        ours.register("plain", other)
    assert isinstance(ours.get("plain"), Plain)


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "a://", "-a", "a-", "ä", "a\n", "external", None, 5])
def test_bad_names_are_refused(name: str) -> None:
    ours = registry()
    with pytest.raises(InvalidProviderName):
        ours.register(name, Plain)
    with pytest.raises(InvalidProviderName):
        ours.get(name)


@pytest.mark.parametrize("name", ["a", "aws", "Acme", "a-b.c_d", "0x"])
def test_good_names_are_taken_and_a_factory_may_use_the_registry(name: str) -> None:
    ours = registry()
    ours.register(name, Plain)
    ours.register("outer", lambda config: ours.get(name, config))
    assert isinstance(ours.get("outer"), Plain)


def test_a_factory_must_be_callable() -> None:
    with pytest.raises(ProviderTypeError, match=r"must be callable, not a builtins\.str"):
        registry().register("plain", "secret-thing")  # type: ignore[arg-type]  # that is the point


def test_one_factory_wins_when_threads_register_at_once() -> None:
    ours = registry()
    factories: list[Callable[[CloudConfig | None], Interface]] = [lambda config: Plain(config) for _ in range(8)]
    barrier = threading.Barrier(len(factories))
    refused: list[DuplicateProvider] = []

    def race(factory: Callable[[CloudConfig | None], Interface]) -> None:
        barrier.wait()
        try:
            ours.register("plain", factory)
        except DuplicateProvider as exc:
            refused.append(exc)

    threads = [threading.Thread(target=race, args=(factory,)) for factory in factories]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == len(factories) - 1


# Finding plugins


def test_only_the_plugin_asked_for_is_imported(install: Install) -> None:
    install("good-cloud", "good = good_module:new_provider", good_module=GOOD)
    install("bad-cloud", "bad = bad_module:new_provider", bad_module="raise RuntimeError('imported!')")
    ours = registry()
    assert {"good", "bad"} <= set(ours.names())
    assert not {"good_module", "bad_module"} & set(sys.modules)
    assert ours.get("good").provider_name() == "good"
    assert "bad_module" not in sys.modules


@pytest.mark.parametrize(
    ("entry", "text", "error", "told"),
    [
        ("nothing", GOOD, ProviderLoadError, "names 'nothing', which .*bad_module.py does not have"),
        ("", GOOD, ProviderLoadError, "not callable but a builtins.module"),
        ("VALUE", "VALUE = 5", ProviderLoadError, "not callable but a builtins.int"),
        ("bad-module:x", "", ProviderLoadError, "does not have the form module:object"),
        ("new_provider", "def new_provider(:", ProviderLoadError, "SyntaxError"),
        ("new_provider", "import sys; sys.exit(3)", ProviderLoadError, "SystemExit: 3"),
        ("new_provider", "raise KeyboardInterrupt", KeyboardInterrupt, None),
    ],
)
def test_every_way_of_not_loading_is_a_load_error_and_the_user_can_still_interrupt(
    install: Install, entry: str, text: str, error: type[BaseException], told: str | None
) -> None:
    install("bad-cloud", f"bad = bad_module:{entry}".rstrip(":"), bad_module=text)
    with pytest.raises(error, match=told):
        registry().get("bad")


def test_two_distributions_with_one_name_quarrel_only_over_that_name(install: Install) -> None:
    install("good-cloud", "good = good_module:new_provider", "same = good_module:new_provider", good_module=GOOD)
    install("twin-cloud", "same = twin_module:new_provider", version="0.2", twin_module=GOOD)
    ours = registry()
    assert ours.names().count("same") == 1
    with pytest.raises(DuplicateProvider) as caught:
        ours.get("same")
    for part in ("good-cloud 1.0 (good_module:new_provider)", "twin-cloud 0.2 (twin_module:new_provider)", "uninstall"):
        assert part in str(caught.value)
    assert caught.value.distribution == "good-cloud 1.0, twin-cloud 0.2"
    assert "twin_module" not in sys.modules
    assert ours.get("good").provider_name() == "good"


def test_one_distribution_that_contradicts_itself_is_told_as_well(install: Install) -> None:
    install("odd-cloud", "same = a_module:x", "same = b_module:x")
    with pytest.raises(DuplicateProvider, match=r"a_module:x.*b_module:x"):
        registry().get("same")


def test_a_distribution_found_twice_counts_once_as_the_first(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("good-cloud", "good = old_module:new_provider", version="0.9")
    newer = tmp_path / "newer"
    info = newer / "good_cloud-1.1.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: good-cloud\nVersion: 1.1\n")
    info.joinpath("entry_points.txt").write_text("[cloudprovider.providers]\ngood = good_module:new_provider\n")
    newer.joinpath("good_module.py").write_text(textwrap.dedent(GOOD))
    monkeypatch.syspath_prepend(newer)
    monkeypatch.delitem(sys.modules, "good_module", raising=False)
    assert registry().get("good").provider_name() == "good"


def test_a_directory_that_no_look_up_finds_is_read_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "odd-cloud-1.0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: odd-cloud\nVersion: 1.0\n")
    info.joinpath("entry_points.txt").write_text("[cloudprovider.providers]\nodd = odd_module:x\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "odd" in registry().names()


def test_broken_metadata_costs_only_its_own_distribution(install: Install) -> None:
    install("good-cloud", "good = good_module:new_provider", good_module=GOOD)
    install("torn-cloud", "this line has no equals sign")
    install("nameless-cloud", "nameless = good_module:new_provider", metadata=False)
    ours = registry()
    assert ours.get("good").provider_name() == "good"
    assert "nameless" not in ours.names()
    with pytest.raises(UnknownProvider) as caught:
        ours.get("torn")
    assert "torn_cloud-1.0.dist-info" in str(caught.value)
    assert "nameless_cloud-1.0.dist-info" in str(caught.value)


def test_an_unusable_name_of_a_plugin_is_not_listed_and_a_registered_factory_wins(install: Install) -> None:
    install("odd-cloud", "has blanks = m:x", "external = m:x", "plain = m:x")
    ours = registry()
    assert {"has blanks", "external", "plain"} & set(ours.names()) == {"plain"}
    ours.register("plain", Plain)
    assert isinstance(ours.get("plain"), Plain)


def test_where_nothing_is_known_that_is_told() -> None:
    from cloudprovider.loading.plugins import Found

    with pytest.raises(UnknownProvider, match="No provider at all is registered or installed"):
        Registry(Found).get("x")


# Factories that fail


def test_a_registered_factory_that_raises_is_named() -> None:
    def broken(config: CloudConfig | None) -> Interface:
        raise SystemExit("done for")

    ours = registry()
    ours.register("broken", broken)
    with pytest.raises(ProviderFactoryError, match=r"registered as .*broken\) could.*SystemExit: done for"):
        ours.get("broken")


@pytest.mark.parametrize(
    ("result", "told"),
    [(None, "returned None"), (Plain, "returned the class Plain itself"), ("hunter2", "returned a builtins.str")],
)
def test_a_factory_must_return_a_provider(result: object, told: str) -> None:
    ours = registry()
    ours.register("odd", lambda config: result)  # type: ignore[arg-type, return-value]  # that is the point
    with pytest.raises(ProviderTypeError, match=told) as caught:
        ours.get("odd")
    assert "hunter2" not in str(caught.value)
    fix = "is a return statement missing?" if result is None else "Fix: subclass cloudprovider.Interface"
    assert fix in str(caught.value)
    assert f" at {__file__}:" in str(caught.value)


SECRET = CloudConfig(path="/etc/cloud.yaml", data=b"region: north\npassword: hunter2-and-more\n  - token: [abc")


def test_secrets_of_the_config_stay_out_of_errors_and_logs(caplog: pytest.LogCaptureFixture) -> None:
    def parse(config: CloudConfig | None) -> Interface:
        assert config is not None
        try:
            raise KeyError(config.text())
        except KeyError as exc:
            raise ValueError(f"bad line 2: {config.text().splitlines()[1]!r} in region {'north'!r}") from exc

    ours = registry()
    ours.register("parser", parse)
    with pytest.raises(ProviderFactoryError) as caught:
        ours.get("parser", SECRET)
    logging.getLogger("test").error("cannot start", exc_info=caught.value)
    for text in (str(caught.value), repr(caught.value), "".join(traceback.format_exception(caught.value)), caplog.text):
        assert "hunter2" not in text
        assert "and-more" not in text
    assert "password: <redacted>" in str(caught.value)  # the setting's name stays readable
    assert "/etc/cloud.yaml" in str(caught.value)
    assert "in parse" in "".join(traceback.format_exception(caught.value))  # and so does the place
    linked: BaseException | None = caught.value
    while linked is not None:
        assert "hunter2" not in str(linked)
        linked = linked.__cause__ or linked.__context__


def test_a_cause_that_quotes_nothing_is_kept_as_it_is() -> None:
    def parse(config: CloudConfig | None) -> Interface:
        raise ValueError("the setting endpoint is missing")

    ours = registry()
    ours.register("parser", parse)
    with pytest.raises(ProviderFactoryError) as caught:
        ours.get("parser", SECRET)
    assert type(caught.value.__cause__) is ValueError


# Config files, and starting by flag


def test_init_reads_the_config_and_passes_it_on(tmp_path: Path) -> None:
    path = tmp_path / "cloud.conf"
    path.write_bytes(b"region=x\n")
    read = CloudConfig(path=str(path), data=b"region=x\n")
    ours = registry()
    ours.register("plain", Plain)
    for given, config in ((path, read), (str(path), read), (None, None), ("", None)):
        provider = ours.init("plain", given)
        assert isinstance(provider, Plain)
        assert provider.config == config


def test_no_provider_and_an_external_one_are_none() -> None:
    assert registry().init("", "/no/such/file") is None
    assert registry().init("external", "/no/such/file") is None
    assert cloudprovider.is_external("external")
    assert not cloudprovider.is_external("")
    assert not cloudprovider.is_external("aws")


def test_a_missing_config_is_its_own_error(install: Install, tmp_path: Path) -> None:
    install("bad-cloud", "bad = bad_module:new_provider", bad_module="raise RuntimeError('imported!')")
    ours = registry()
    path = tmp_path / "none.conf"
    with pytest.raises(ConfigMissing) as caught:  # before anything is imported
        ours.init("bad", path)
    assert caught.value.path == str(path)
    assert "--cloud-config" in str(caught.value)
    path.write_text("")
    with pytest.raises(ConfigMissing):
        ours.init("bad", path / "below")
    with pytest.raises(UnknownProvider):  # the name is looked at first
        ours.init("nobody", tmp_path / "none.conf")


def test_an_unreadable_config_is_its_own_error_and_an_empty_one_is_a_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigUnreadable, match="directory"):
        CloudConfig.read(tmp_path)
    with pytest.raises(ConfigUnreadable, match="null byte"):
        CloudConfig.read("nul\0byte")
    loop, empty = tmp_path / "loop", tmp_path / "empty"
    loop.symlink_to(loop)
    with pytest.raises(ConfigUnreadable, match="symbolic links"):
        CloudConfig.read(loop)
    empty.touch()
    assert CloudConfig.read(empty).data == b""
    assert CloudConfig(path="", data="\ufeffregion: ä".encode()).text() == "region: ä", "no byte order mark"


def test_a_forbidden_config_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)  # the tests may run as root, whom nothing is forbidden
    with pytest.raises(ConfigUnreadable, match="Permission denied") as caught:
        CloudConfig.read(tmp_path / "secret.conf")
    assert isinstance(caught.value.__cause__, PermissionError)


@pytest.mark.row("X2")
def test_a_secret_that_rotates_in_the_config_is_masked(tmp_path: Path) -> None:
    path = tmp_path / "cloud.conf"
    path.write_text("token: first-horse\n")
    config = CloudConfig.read(path)
    path.write_text("region: north\ntoken: second-horse\n")
    config.read_again()
    assert of_process().line("refused second-horse in north") == "refused *** in north"


def test_a_config_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "cloud.conf"
    path.write_bytes(b"token=one")
    config = CloudConfig.read(path)
    path.write_bytes(b"token=two")
    assert config.data == b"token=one"
    assert config.read_again().data == b"token=two"
    with pytest.raises(ConfigMissing, match="made in memory"):
        CloudConfig(path="", data=b"x").read_again()


def test_a_config_never_shows_what_it_holds() -> None:
    config = CloudConfig(path="/etc/cloud.conf", data=b"hunter2\xff")
    assert repr(config) == str(config) == "CloudConfig(path='/etc/cloud.conf')"
    with pytest.raises(TypeError) as wrong:
        CloudConfig(path="", data="hunter2")  # type: ignore[arg-type]  # that is the point
    assert "hunter2" not in str(wrong.value)
    with pytest.raises(ConfigUnreadable, match="byte 7") as caught:
        config.text()
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None


# The functions of the module share one registry


def test_the_modules_functions(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    from cloudprovider.loading import registry as module

    monkeypatch.setattr(module, "_REGISTRY", registry())
    install("good-cloud", "good = good_module:new_provider", good_module=GOOD)
    cloudprovider.register_cloud_provider("plain", Plain)
    assert {"fake", "good", "plain"} <= set(cloudprovider.cloud_providers())
    assert list(cloudprovider.cloud_providers()) == sorted(cloudprovider.cloud_providers())
    assert cloudprovider.is_cloud_provider("good")
    assert not cloudprovider.is_cloud_provider("nobody")
    assert not cloudprovider.is_cloud_provider("")
    assert cloudprovider.get_cloud_provider("good").provider_name() == "good"
    assert isinstance(cloudprovider.init_cloud_provider("plain"), Plain)
    assert all(issubclass(error, RegistryError) for error in (ConfigMissing, UnknownProvider, DuplicateProvider))
