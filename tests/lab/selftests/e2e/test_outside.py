"""The address from which the suite speaks: set and taken back by `ip`, here a script."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from tests.lab.e2e.outside import CLIENT, outside_client

IP = """#!/bin/sh
echo "$@" >> {log}
case "$*" in
"-json route show match "*) echo '{routes}' ;;
esac
"""
ROUTE = "route replace 203.0.113.0/24 via 10.90.255.2 dev lc-up src"
DEFAULT = '[{"dst": "default", "gateway": "10.0.0.1"}]'


def called(folder: Path, monkeypatch: pytest.MonkeyPatch, routes: str) -> Path:
    log = folder / "log"
    log.touch()
    program = folder / "ip"
    program.write_text(IP.format(log=log, routes=routes))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return log


def opened() -> None:
    pool = IPv4Network("203.0.113.0/24")
    with outside_client("lc-up", IPv4Address("10.90.255.1"), IPv4Address("10.90.255.2"), pool):
        raise LookupError


def test_the_host_speaks_from_its_own_address_again_however_the_suite_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = called(tmp_path, monkeypatch, DEFAULT)
    with pytest.raises(LookupError):
        opened()
    assert log.read_text().splitlines() == [
        f"-json route show match {CLIENT}",
        f"address replace {CLIENT}/32 dev lc-up",
        f"{ROUTE} {CLIENT}",
        f"{ROUTE} 10.90.255.1",
        f"address delete {CLIENT}/32 dev lc-up",
    ]


def test_an_address_that_the_host_has_a_way_to_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = called(tmp_path, monkeypatch, '[{"dst": "default"}, {"dst": "198.18.0.0/15"}]')
    with pytest.raises(RuntimeError, match=r"has a route to 198\.18\.0\.0/15"):
        opened()
    assert len(log.read_text().splitlines()) == 1
