"""What is missing on a machine is named all at once."""

from collections.abc import Callable
from pathlib import Path

from tests.lab.cluster import needs
from tests.lab.cluster.needs import missing


def problems(
    *,
    platform: str = "linux",
    root: bool = True,
    absent: tuple[str, ...] = (),
    cni: Path | None = Path("/usr/lib/cni"),
    namespaces: Callable[[], bool] = lambda: True,
    folders: tuple[Path, ...] = (Path("/home/me/.cache"),),
    builder_needed: bool = False,
    go_needed: bool = False,
) -> list[str]:
    return missing(
        platform=platform,
        root=root,
        find=lambda tool: None if tool in absent else f"/usr/bin/{tool}",
        cni=cni,
        namespaces=namespaces,
        folders=folders,
        builder_needed=builder_needed,
        go_needed=go_needed,
    )


def test_nothing_is_missing() -> None:
    assert problems() == []


def test_all_that_is_missing_is_named_with_one_command() -> None:
    found = problems(
        root=False, absent=("containerd", "ctr", "buildah", "mmdebstrap", "go"), cni=None, builder_needed=True,
        go_needed=True,
    )  # fmt: skip
    assert found == [
        "not found: containerd, ctr, buildah, mmdebstrap, the network plugins host-local, loopback, portmap, ptp. "
        "Debian, Ubuntu: sudo apt-get install buildah containerd containernetworking-plugins mmdebstrap",
        "not found: go, which builds Kubernetes' programs once. Install it from https://go.dev/dl; sudo may hide it: "
        'sudo env "PATH=$PATH" make cluster',
        "not root: start it again with sudo, as `sudo make cluster`",
    ]


def test_what_builds_is_needed_only_where_something_is_to_be_built() -> None:
    assert problems(absent=("mmdebstrap", "go")) == []


def test_another_system_is_told_first_and_alone() -> None:
    [found] = problems(platform="darwin", root=False, absent=("containerd",))
    assert "Linux is needed" in found


def test_a_container_without_rights_is_told_what_it_needs() -> None:
    assert problems(namespaces=lambda: False) == [
        "namespaces and mounts are not allowed here: a container needs --privileged"
    ]


def test_a_folder_that_machines_do_not_see_is_named() -> None:
    [found] = problems(folders=(Path("/var/lib/jenkins/cache"), Path("/home/me")))
    assert found == "the machines do not see /var/lib/jenkins/cache: put it, or XDG_CACHE_HOME, outside /var/lib"


def test_the_network_plugins_are_found_where_all_of_them_are(tmp_path: Path) -> None:
    some, all_of_them = tmp_path / "some", tmp_path / "all"
    for folder, plugins in ((some, needs.CNI_PLUGINS[1:]), (all_of_them, needs.CNI_PLUGINS)):
        folder.mkdir()
        for plugin in plugins:
            (folder / plugin).touch()
    assert needs.cni_folder((some, all_of_them)) == all_of_them
    assert needs.cni_folder((some,)) is None
