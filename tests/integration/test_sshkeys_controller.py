"""The ssh-key controller over both API servers: every machine has the keys, and no output shows any
part of one."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from cloudprovider.testing.fake import FakeCloud, FakeConfig, raises
from cloudprovider.testing.waiting import eventually
from controllers.sshkeys.controller import SSHKeyController
from controllers.sshkeys.registration import SSHKeyOptions
from tests.integration.conftest import Cluster, Share
from tests.support.api import NODES
from tests.support.https import ask, free_port
from tests.support.nodes import small_node
from tests.support.process import Start
from tests.support.running import at_work
from tests.support.sshkeys import OTHER, PRIVATE, PUBLIC, SHOWN, leaks

CLOUD = {"generate": [{"count": 2}]}


def _replace(path: Path, text: str) -> None:
    """As people do it whose file is read at any time: a file that is written in place is empty for
    a moment."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def test_machines_get_the_keys_at_the_start_when_they_join_and_when_the_file_changes(
    api: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = tmp_path / "keys.pub"
    keys.write_text(PUBLIC)
    cloud = FakeCloud(FakeConfig.model_validate(CLOUD))
    options = SSHKeyOptions(ssh_user="ada", ssh_keyfile=str(keys), gather=0.5, file_period=0.1)
    kubeconfig = Path(api.server.write_kubeconfig(tmp_path / "admin"))
    api.create(NODES, small_node("node-0001"))
    with (
        caplog.at_level(logging.DEBUG),
        at_work(SSHKeyController, kubeconfig, cloud, options),
    ):
        eventually(lambda: cloud.console.ssh_keys("node-0001") == [("ada", PUBLIC)], 60)
        for number in range(10):
            cloud.console.add_instance(f"late-{number}")
            api.create(NODES, small_node(f"late-{number}"))
        eventually(lambda: all(cloud.console.ssh_keys(f"late-{number}") for number in range(10)), 60)
        _replace(keys, f"{PUBLIC}\n{OTHER}\n")
        eventually(lambda: ("ada", OTHER) in cloud.console.ssh_keys("late-0"), 60)
        assert len(cloud.calls.log("add_ssh_key_to_all_instances")) <= 8, "ten nodes cost a call or two"
        _replace(keys, PRIVATE)
        eventually(lambda: "InvalidSSHKeyFile" in api.event_messages("kube-system"), 60)
        assert "it is a private key" in api.event_messages("kube-system")["InvalidSSHKeyFile"]
    assert leaks(caplog.text, *api.event_messages("kube-system").values()) == []


@pytest.mark.parametrize("api", ["embedded"], indirect=True)
def test_the_manager_shows_no_key_even_if_the_provider_does(
    api: Cluster, start: Start, share: Share, tmp_path: Path
) -> None:
    cloud = share(CLOUD)
    cloud.faults.on("add_ssh_key*", raises(RuntimeError(f"cannot install {PUBLIC}")), times=1)
    keys = tmp_path / "keys.pub"
    keys.write_text(f"{PUBLIC} sentinel@desk\n")
    port = free_port()
    process = start.manager(
        api.server.write_kubeconfig(tmp_path / "admin"),
        "--controllers=ssh-key",
        "--ssh-user=ada",
        f"--ssh-keyfile={keys}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--v=6",
    )
    eventually(lambda: "FailedToInstallSSHKey" in api.event_messages("kube-system"), 60, lambda: process.log)
    assert (
        f"The SSH key ssh-ed25519 {SHOWN} of user ada may be missing"
        in api.event_messages("kube-system")["FailedToInstallSSHKey"]
    )
    eventually(lambda: cloud.console.ssh_keys("node-0001") == [("ada", PUBLIC)], 60, lambda: process.log)
    told = f"installed the SSH key ssh-ed25519 {SHOWN} of user ada on all instances"
    eventually(lambda: told in process.log, 10, lambda: process.log)
    pages = [ask(port, path, token=api.server.token)[1] for path in ("/configz", "/flagz", "/metrics", "/statusz")]
    assert 'ssh_key_controller_keys{state="installed"} 1.0' in pages[2]
    assert str(keys) in pages[0]
    assert leaks(process.log, *api.event_messages("kube-system").values(), *pages) == []
