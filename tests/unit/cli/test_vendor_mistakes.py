"""Every mistake that keeps a provider from being found, loaded or started is told: what happened,
where, what to do.

The providers are real distributions on sys.path, and the program is the one that an operator
starts.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cloudprovider import get_cloud_provider
from cloudprovider.checks.provider import interface_problems
from controllers.app import ManagerError, hosting
from controllers.cli import main as cli
from tests.support.plugins import write_distribution

GOOD = """
from cloudprovider import InstanceMetadata, InstancesV2, Interface


class AcmeCloud(Interface, InstancesV2):
    def provider_name(self):
        return "acme"

    def instances_v2(self):
        return self

    def instance_exists(self, node):
        return True

    def instance_shutdown(self, node):
        return False

    def instance_metadata(self, node):
        return InstanceMetadata(provider_id="acme://i-1")


def new_provider(config):
    return AcmeCloud()
"""
ACCESSOR = "    def instances_v2(self):\n        return self\n\n"
LINE = (
    'Fix: correct the line under [project.entry-points."cloudprovider.providers"] in the pyproject.toml of acme-cloud'
)
ENTRY = "acme = acme_module:new_provider"
IMPORT = "cloud provider 'acme' (from acme-cloud 1.0) could not be imported: "
OPERATOR = "if acme-cloud is not yours, install another version of it."

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs acme-cloud 1.0: the text of its module, and its entry point."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def install(text: str, entry: str = ENTRY) -> None:
        monkeypatch.delitem(sys.modules, "acme_module", raising=False)
        write_distribution(tmp_path, "acme-cloud", entry, acme_module=text)

    return install


def started(capsys: pytest.CaptureFixture[str], *flags: str, provider: str = "acme") -> str:
    """What the manager logs before it ends with 1, without the lines of every start here, where
    there is no API server."""
    given = [f"--cloud-provider={provider}"] if provider else []
    code = cli.main([*given, "--leader-elect=false", "--secure-port=0", *flags])
    assert code in (1, 2)
    lines = capsys.readouterr().err.splitlines()
    usual = (" starts with provider ", "flags that differ", "no API server to talk to")
    return "\n".join(line for line in lines if not any(text in line for text in usual))


def where(text: str, path: Path) -> str:
    """ "file:line" of the line of the module that begins with `text`."""
    lines = (path / "acme_module.py").read_text().splitlines()
    (number,) = (at for at, line in enumerate(lines, 1) if line.strip().startswith(text))
    return f"{path / 'acme_module.py'}:{number}"


FACTORY = "def new_provider(config):\n    "
SHUTDOWN = "    def instance_shutdown(self, node):\n        return False\n\n"


@pytest.mark.parametrize(
    ("text", "entry", "told"),
    [
        (GOOD, "acme = acme_modul:new_provider", [
            "its entry point acme = \"acme_modul:new_provider\" names the module 'acme_modul', which is not inst",
            'Did you mean acme = "acme_module:new_provider"?', LINE, OPERATOR,
            "acme_cloud-1.0.dist-info/entry_points.txt"]),
        (GOOD, "acme = acme_module:new_provder", [
            "names 'new_provder', which {folder}/acme_module.py does not have. Did you mean 'new_provider'?", LINE]),
        ("import requestz\n", ENTRY, [
            f"{IMPORT}there is no module 'requestz'", "{import requestz}", "install what acme-cloud needs"]),
        ("region = {}['region']\n", ENTRY, [
            f"{IMPORT}KeyError: 'region'", "{region =}", f"correct that line; {OPERATOR}"]),
        ("def new_provider(config)\n    pass\n", ENTRY, [
            f"{IMPORT}SyntaxError: expected ':': def new", "{def new}", "correct that line"]),
        ("from cloudprovider import InstanceV2\n", ENTRY, [
            f"{IMPORT}ImportError: cannot import name 'InstanceV2' from 'cloudprovider'", "{from cloudprovider}",
            "Did you mean 'InstancesV2'? Fix: correct that line"]),
        (FACTORY + "raise ValueError('region is not set')\n", ENTRY, [
            "ValueError: region is not set ({raise}, in new_provider). Fix: give a --cloud-config",
            "if that is right, {raise} of acme-cloud 1.0 is wrong. -v=4 shows the traceback."]),
        ("import json\n\n" + FACTORY + "return json.loads('{')\n", ENTRY, ["({return json}, in new_provider)"]),
        (FACTORY + "return len()\n", ENTRY, ["TypeError: len() takes exactly one argument (0 given) ({return}"]),
        (FACTORY + "return None\n", ENTRY, [
            "at {def new_provider} returned None, which is not a cloudprovider.Interface",
            "Fix: return the provider (is a return statement missing?)."]),
        (GOOD.replace("new_provider(config)", "new_provider()"), ENTRY, [
            "its factory new_provider() ({def new_provider}) must take one argument",
            "Fix: write it as def new_provider(config: CloudConfig | None) -> Interface."]),
        (GOOD.replace(SHUTDOWN, ""), ENTRY, [
            "the class AcmeCloud ({class AcmeCloud}) lacks the method InstancesV2.inst",
            "InstancesV2.instance_shutdown(node: V1Node) -> bool. Fix: write it; help(cloudprovider.InstancesV2."]),
    ],
)  # fmt: skip
def test_it_cannot_be_loaded(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, entry: str, told: list[str]
) -> None:
    """`{raise}` stands for the place of the line that begins so."""
    install(text, entry)
    said = started(capsys)
    for part in told:
        wanted = part.replace("{folder}", str(tmp_path))
        assert re.sub(r"\{(.+?)\}", lambda line: where(line[1], tmp_path), wanted) in said
    assert "Traceback" not in said
    assert "--cloud-config" not in said or FACTORY in text


def test_the_module_in_its_package_is_misspelt(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "acme_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "provider.py").write_text(GOOD)
    install("", "acme = acme_package.provder:new_provider")
    assert 'Did you mean acme = "acme_package.provider:new_provider"?' in started(capsys)


def test_the_authors_own_pyproject_is_named_where_it_was_installed_from(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(GOOD, "acme = acme_module:new_provder")
    url = {"url": tmp_path.as_uri(), "dir_info": {"editable": True}}
    (tmp_path / "acme_cloud-1.0.dist-info" / "direct_url.json").write_text(json.dumps(url))
    assert f'"cloudprovider.providers"] in {tmp_path}/pyproject.toml' in started(capsys)


def test_the_traceback_is_shown_at_v4_in_text_and_json(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(FACTORY + "raise ValueError('region is not set')\n")
    told = started(capsys, "-v=4")
    assert "Traceback (most recent call last):" in told
    assert "raise ValueError('region is not set')" in told
    assert "-v=4 shows" not in told
    last = json.loads(started(capsys, "-v=4", "--logging-format=json").splitlines()[-1])
    assert last["level"] == "debug"
    assert "raise ValueError('region is not set')" in last["error"]


def test_what_is_wrong_with_the_provider_and_with_the_kubeconfig_is_told_at_once(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(FACTORY + "raise ValueError('region is not set')\n")
    told = started(capsys, f"--kubeconfig={tmp_path / 'missing'}").splitlines()
    assert "ValueError: region is not set" in told[0]
    assert "No such file or directory; correct --kubeconfig" in told[-1]


def test_several_abstract_methods_are_missing(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(GOOD.replace("def instance_", "def instanze_"))
    told = started(capsys).splitlines()
    assert re.search(r"AcmeCloud \(.*\) lacks 3 methods:$", told[0])
    assert told[1].endswith("]   InstancesV2.instance_exists(node: V1Node) -> bool")
    assert "Fix: write them; help(cloudprovider.InstancesV2.instance_exists)" in told[4]


@pytest.mark.parametrize(
    "text",
    [
        "raise ValueError('zone: must be one of a, b\\nregion: must be given\\n\\nretries: 7 is more than 5')",
        "raise ExceptionGroup('bad', [KeyError('zone'), ValueError('region'), ValueError('retries')])",
        "error = ValueError(); error.problems = ('zone', 'region', 'retries'); raise error",
    ],
)
def test_each_mistake_of_a_config_file_is_a_line_also_in_json(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    install(f"def new_provider(config):\n    {text}\n")
    (tmp_path / "acme.yaml").write_text("zone: c\n")
    told = started(capsys, "--cloud-config=acme.yaml").splitlines()
    assert len(told) == 5
    assert all(line.startswith("E") for line in told)
    for line, name in zip(told[1:4], ("zone", "region", "retries"), strict=True):
        assert name in line
    wrong = f"if that is right, {tmp_path / 'acme_module.py'}:2 of acme-cloud 1.0 is wrong."
    assert f"Fix: correct the cloud config 'acme.yaml'; {wrong}" in told[4]
    assert "\\n" not in "".join(told)
    lines = started(capsys, "--cloud-config=acme.yaml", "--logging-format=json").splitlines()
    assert [json.loads(line)["level"] for line in lines] == ["error"] * 5


REGIONS = """def new_provider(config):
    region = config.text().split("region: ")[1].split()[0]
    raise ValueError(f"there is no region {region}")
"""
OPENS = """def new_provider(config):
    open(config.text().split(": ")[1].split()[0])
"""
LOADS = """from cloudprovider.config import ProviderConfig

class Config(ProviderConfig):
    env_prefix = "ACME_"
    account: str
    retries: int

def new_provider(config):
    Config.load(config)
"""


@pytest.fixture
def prod(tmp_path: Path) -> Path:
    """A config whose values are parts of its own file's name."""
    config = tmp_path / "prod" / "acme.yaml"
    config.parent.mkdir()
    config.write_text("account: prod\nregion: mars-1\nretries: many\n")
    return config


def test_a_mistake_of_a_config_file_is_told_with_its_line(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str], prod: Path
) -> None:
    install(REGIONS)
    told = started(capsys, f"--cloud-config={prod}")
    assert "ValueError: there is no region *** (" in told
    place = where("raise", tmp_path)
    assert f"Fix: correct line 2 of the cloud config '{prod}'; if that is right, {place} of acme-cloud 1.0 is" in told


def test_the_name_of_a_config_file_quotes_no_line_of_it(
    install: Install, capsys: pytest.CaptureFixture[str], prod: Path
) -> None:
    install("def new_provider(config):\n    raise ValueError(f'{config.path} lacks a token')\n")
    assert f"Fix: correct the cloud config '{prod}'; if that is right" in started(capsys, f"--cloud-config={prod}")


def test_what_the_contract_says_of_a_config_is_no_mistake_of_the_provider(
    install: Install, capsys: pytest.CaptureFixture[str], prod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(LOADS)
    monkeypatch.setenv("ACME_RETRIES", "none")
    told = started(capsys, f"--cloud-config={prod}")
    assert f"{prod}, line 2: region: unknown field" in told
    assert "ACME_RETRIES: must be a valid integer" in told
    assert "Fix: correct it in the file or the variable that is named." in told
    assert "acme_module.py" not in told


@pytest.mark.parametrize("name", ["/etc/acme/prod/ca.pem", "prod/ca.pem"])
def test_the_name_of_a_file_is_shown_although_the_config_has_it(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    install(OPENS)
    (tmp_path / "acme.yaml").write_text(f"ca-file: {name}\nstage: prod\nzone: acme\n")
    for flags in ((), ("-v=4",)):
        told = started(capsys, "--cloud-config=acme.yaml", *flags)
        assert f"No such file or directory: '{name}' (" in told
        assert "Fix: correct line 1 of the cloud config 'acme.yaml'" in told
        assert "***" not in told


@pytest.mark.parametrize(
    ("written", "secret"),
    [
        ("password: /correct/horse", "horse"),
        ("key-file: MIIEvQIBADANBgkqhkiG9w0BAQEFAASC/BKcwggSjAgEAAoIBAQ", "MIIEv"),
        ("password-file: hunter2secret", "hunter2"),
        ("share: //backup:hunter2secret@nas/volume", "hunter2"),
        ("path: /v1/api?key=hunter2secret", "hunter2"),
        ("blob: /AbCdEfGhIjKlMnOpQrSt/uVwXyZaBc", "OpQr"),
        ("blob: /aB3/xY9z/Qw12/pO0", "xY9z"),
    ],
)
def test_a_secret_that_is_opened_as_a_file_is_no_files_name(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str], written: str, secret: str
) -> None:
    install(OPENS)
    (tmp_path / "acme.yaml").write_text(f"{written}\n")
    told = started(capsys, "--cloud-config=acme.yaml", "-v=4")
    assert secret not in told
    assert "'***'" in told


@pytest.mark.parametrize("text", ["f'cannot parse: {error}'", "'cannot parse it'"])
def test_what_a_provider_says_in_the_contracts_words_may_quote_its_config(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    install(
        f"""from cloudprovider import InvalidConfig

def new_provider(config):
    try:
        raise ValueError(f"not understood: {{config.text()}}")
    except ValueError as error:
        raise InvalidConfig({text}) from error
"""
    )
    (tmp_path / "acme.yaml").write_text("pin: correct-horse-battery\n")
    told = started(capsys, "--cloud-config=acme.yaml", "-v=4")
    assert "InvalidConfig: cannot parse" in told
    assert "horse" not in told
    assert re.search(r"Fix: correct (line 1 of )?the cloud config 'acme.yaml', or the variable that is named\.", told)


def test_mistakes_that_pydantic_finds_are_a_line_each_without_values(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(
        "from pydantic import BaseModel\n\nclass Config(BaseModel):\n    region: str\n    retries: int\n\n"
        "def new_provider(config):\n    Config.model_validate_json(config.data)\n"
    )
    (tmp_path / "acme.json").write_text('{"retries": "correct-horse-battery"}')
    told = started(capsys, "--cloud-config=acme.json")
    assert re.search(r"\]   region: Field required$", told, re.MULTILINE)
    assert re.search(r"\]   retries: Input should be a valid integer, unable to parse string", told, re.MULTILINE)
    assert "correct-horse" not in told


def test_the_provider_is_not_given(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(GOOD)
    told = started(capsys, provider="")
    assert "--cloud-provider: must be given: the name of an installed provider. Installed: acme, " in told


def test_a_name_that_nobody_has_or_two_have(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(GOOD)
    told = started(capsys, provider="acmee")
    assert "unknown cloud provider 'acmee'. Did you mean 'acme'? Fix: correct the name" in told
    write_distribution(tmp_path, "twin-cloud", "acme = acme_module:new_provider")
    told = started(capsys)
    assert "offered more than once: acme-cloud 1.0 (acme_module:new_provider); twin-cloud 1.0" in told
    assert "Fix: uninstall all but one." in told


# At the start, once it exists


def refused(kubeconfig: str) -> str:
    """What `hosting` says, as the manager does."""
    with pytest.raises(ManagerError) as caught, hosting(get_cloud_provider("acme"), kubeconfig):
        pytest.fail("the provider was accepted")
    return str(caught.value)


def test_its_name_differs_from_the_entry_points(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(GOOD.replace('return "acme"', 'return "acmecloud"'))
    told = started(capsys, "--kubeconfig=missing")
    assert "W" in told.splitlines()[0]
    assert (
        "AcmeCloud.provider_name() returns 'acmecloud', but the provider is installed or registered as 'acme'" in told
    )
    assert "Fix: give both the same name: provider IDs begin with acmecloud://" in told


RETURN = "        return self\n"
MORE = """    def loadbalancer(self) -> object:
        return self

    def routes(self) -> "Routes":
        return None
"""
SSH = """

class Machines(AcmeCloud):
    pass


class AcmeProvider(AcmeCloud, SSHKeys):
    def add_ssh_key_to_all_instances(self, user, key_data):
        pass


MACHINES = Machines()
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (GOOD.replace(RETURN, "        self\n"), [
            "AcmeCloud implements InstancesV2, but AcmeCloud.instances_v2() returns None (",
            "return the object, if a return statement is missing"]),
        (GOOD.replace("\n\n\ndef new_provider", f"\n\n{MORE}\n\ndef new_provider"), [
            "AcmeCloud.loadbalancer() (",
            "is no accessor: the host does not call it. Fix: name it load_balancer, if that is",
            "AcmeCloud.routes() returns None (", "although its annotation promises an object"]),
        # SSHKeys has no accessor: the host looks for it on what instances_v2() returns
        ((GOOD.replace("InstancesV2, Interface\n", "InstancesV2, Interface, SSHKeys\n")
          .replace(RETURN, "        return MACHINES\n") + SSH).replace("return AcmeCloud()", "return AcmeProvider()"), [
            "AcmeProvider implements SSHKeys, but the object of instances_v2() does not",
            "let the class Machines subclass cloudprovider.SSHKeys too"]),
    ],
)  # fmt: skip
def test_a_capability_that_may_be_off_on_purpose_is_a_warning(
    install: Install, kubeconfig: str, caplog: pytest.LogCaptureFixture, text: str, told: list[str]
) -> None:
    install(text)
    with caplog.at_level(logging.WARNING), hosting(get_cloud_provider("acme"), kubeconfig):
        pass
    for part in told:
        assert part in caplog.text


UNUSABLE = "cannot be used: AcmeCloud.instances_v2() "


@pytest.mark.parametrize(
    ("old", "new", "what", "fix"),
    [
        (ACCESSOR, "", "AcmeCloud implements InstancesV2, but AcmeCloud.instances_v2() returns None. Fix: add to Acme",
         "): def instances_v2(self) -> InstancesV2: return self."),
        ("return self\n", "return AcmeCloud\n", f"{UNUSABLE}returns the class AcmeCloud itself",
         "return an object of it: AcmeCloud(...)"),
        ("return self\n", "return 5\n", f"{UNUSABLE}returns a int, which lacks instance_exists",
         "subclasses cloudprovider.InstancesV2"),
        ("return self\n", "return 1 // 0\n", f"{UNUSABLE}raised ZeroDivisionError: integer division",
         "correct that line"),
        ("def instance_metadata", "async def instance_metadata", "is async", "plain function"),
        ("def instances_v2", "async def instances_v2", "is async", "plain function"),
        ("return False", "yield False", "is a generator", "plain function"),
        ("def instance_shutdown(self, node)", "def instance_shutdown(self)", "cannot be called with (node)",
         "give it the parameters of cloudprovider.InstancesV2.instance_shutdown"),
        ("    def instances_v2", "    @property\n    def instances_v2", "is not a method but", "without @property"),
    ],
)  # fmt: skip
def test_what_the_host_cannot_call_is_refused(
    install: Install, kubeconfig: str, old: str, new: str, what: str, fix: str
) -> None:
    install(GOOD.replace(old, new))
    told = refused(kubeconfig)
    assert re.search(r"AcmeCloud\.instance", told)
    assert what in told
    assert fix in told


def test_all_problems_are_told_together_a_line_each(install: Install, kubeconfig: str) -> None:
    install(GOOD.replace("def instance_", "async def instance_"))
    told = refused(kubeconfig).splitlines()
    assert told[0] == "cloud provider acme cannot be used:"
    assert [re.findall(r"AcmeCloud\.(\w+)", line) for line in told[1:]] == [
        ["instance_exists"],
        ["instance_shutdown"],
        ["instance_metadata"],
    ]


def test_initialize_raises(install: Install, tmp_path: Path, kubeconfig: str) -> None:
    code = "    def initialize(self, client_builder, stop):\n        raise RuntimeError('the token is refused')\n\n"
    install(GOOD.replace(ACCESSOR, code + ACCESSOR))
    told = refused(kubeconfig)
    place = f"{where('raise', tmp_path)}, in initialize"
    assert told == f"cloud provider acme could not be initialised: RuntimeError: the token is refused ({place})."


def test_its_name_is_told_beside_other_mistakes(install: Install) -> None:
    code = "    async def has_cluster_id(self):\n        return True\n\n"
    install(GOOD.replace(ACCESSOR, code + ACCESSOR).replace('return "acme"', 'return "acmecloud"'))
    provider = get_cloud_provider("acme")
    assert [problem.what for problem in interface_problems(provider, "acme")] == [
        f"AcmeCloud.has_cluster_id ({sys.modules['acme_module'].__file__}:9) is async",
        "AcmeCloud.provider_name() returns 'acmecloud', but the provider is installed or registered as 'acme'",
    ]
    assert len(interface_problems(provider)) == 1


@pytest.mark.parametrize("name", ["None", "5", "''", "' '"])
def test_its_name_is_none(install: Install, name: str) -> None:
    install(GOOD.replace('return "acme"', f"return {name}"))
    (problem,) = interface_problems(get_cloud_provider("acme"))
    assert problem.what.endswith("which is no name")
    assert problem.fatal
