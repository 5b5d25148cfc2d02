"""The configuration tells all mistakes at once, with the names that are probably meant; provider
IDs follow their template."""

from __future__ import annotations

from pathlib import Path

import pytest
from libcloud_provider.arguments import argument_names, compute_drivers, driver_class, required_names
from libcloud_provider.config import Config
from libcloud_provider.profiles import PROFILES, Parts
from libcloud_provider.provider import Libcloud, new_provider
from libcloud_provider.providerids import ProviderIDs, template_problems

from cloudprovider import CloudConfig, CloudProviderError
from cloudprovider.errors import InvalidConfig
from cloudprovider.helpers import same_provider_id


def problems(text: str) -> list[str]:
    with pytest.raises(InvalidConfig) as raised:
        Config.load(CloudConfig(path="cloud.yaml", data=text.encode()), environ={})
    return list(raised.value.problems)


def test_all_mistakes_are_told_at_once_with_what_is_meant(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    text = f"""driver: openstack
regoin: RegionOne
arguments:
  key: me
  ex_forced_auth_url: https://keystone.example
  secret: in-the-clear-7f3a
credentials:
  secret: {tmp_path / "missing"}
  ex_force_auth_token: {tmp_path / "empty"}
provider_id: "{{uuid}}"
absent: deleted
load_balancer:
  driver: rackspaze
"""
    told = problems(text)
    shown = "\n".join(told)
    assert "did you mean region?" in shown
    assert "ex_forced_auth_url: the driver takes no such argument; did you mean ex_force_auth_url?" in shown
    assert "secret: give the path of a file, under `credentials`" in shown
    assert f"secret: cannot read {tmp_path / 'missing'}: No such file or directory" in shown
    assert f"ex_force_auth_token: the file {tmp_path / 'empty'} is empty" in shown
    assert "must end with {id} or {name}" in shown
    assert "libcloud has no driver of this name; did you mean rackspace?" in shown
    assert any("absent" in one for one in told)
    assert "in-the-clear-7f3a" not in shown
    assert all("cloud.yaml, line" in one for one in told)
    assert len(told) == 6


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("driver: digitalocen", "did you mean digitalocean?"),
        ("driver: x1", "known: abiquo, aliyun_ecs, "),
        ("driver: vsphere", "cannot be used: its requests bypass libcloud's connection"),
        ("driver: digitalocean", "key is required, here or under `arguments`"),
        ("driver: digitalocean\narguments: {key: in-the-clear}", "key, which is the secret where there is no other"),
        ("driver: gce\narguments: {user_id: me}", "project is required"),
        ("driver: ovh\narguments: {key: k, ex_project_id: p, secret: x}", "give the path of a file"),
        ("driver: dummy\narguments: {creds: 1}\nload_balancer: {driver: gce}", "leaves the target pool behind"),
        ("driver: dummy\narguments: {creds: 1}\nload_balancer: {driver: elb, arguments: {key: /a}}", "access_id is"),
        ("driver: dummy\narguments: {creds: 1}\nmatch: []", "at least 1"),
        ("region: x", "driver: is required"),
    ],
)
def test_single_mistakes(text: str, expected: str) -> None:
    assert any(expected in one for one in problems(text)), problems(text)


def test_every_driver_that_can_be_loaded_has_its_required_arguments_among_the_known() -> None:
    for driver, place in compute_drivers().items():
        if PROFILES.get(driver) is None or not PROFILES[driver].refused:
            known = argument_names(driver_class(place))
            assert set(required_names(place)) - known == set(), driver
            assert not known & {"timeout", "retry_delay", "backoff"}, driver


def test_a_fixed_part_that_is_missing_is_told() -> None:
    with pytest.raises(InvalidConfig, match="needs project, which is not set"):
        new_provider(
            CloudConfig(path="", data=b"driver: dummy\narguments: {creds: 1}\nprovider_id: 'x://{project}/{id}'")
        )


def test_the_region_is_an_argument_too(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("s3cret")
    base = f"driver: aliyun_ecs\ncredentials: {{secret: {tmp_path / 's'}}}\n"
    for text in (f"{base}region: cn-x\narguments: {{key: k}}", f"{base}arguments: {{key: k, region: cn-x}}"):
        provider = Libcloud(Config.load(CloudConfig(path="", data=text.encode()), environ={}))
        assert provider.provider_id_prefixes() == ("libcloud://aliyun_ecs/cn-x/",)


@pytest.mark.parametrize(
    ("template", "fixed", "parts", "expected"),
    [
        ("aws:///{zone}/{id}", {}, Parts(id="i-1", zone="eu-1a"), "aws:///eu-1a/i-1"),
        ("openstack:///{id}", {}, Parts(id="u"), "openstack:///u"),
        ("openstack://{region}/{id}", {"region": "R"}, Parts(id="u"), "openstack://R/u"),
        ("gce://{project}/{zone}/{name}", {"project": "p"}, Parts(id="7", name="n", zone="z"), "gce://p/z/n"),
        ("azure://{id}", {}, Parts(id="/subscriptions/S/vm"), "azure:///subscriptions/S/vm"),
        ("upcloud:////{id}", {}, Parts(id="u"), "upcloud:////u"),
        ("libcloud://{driver}/{region}/{id}", {"driver": "d", "region": "r"}, Parts(id="1"), "libcloud://d/r/1"),
        ("libcloud://{driver}/{region}/{id}", {"driver": "d"}, Parts(id="1"), "libcloud://d/1"),
    ],
)
def test_provider_ids_are_written_and_read(template: str, fixed: dict[str, str], parts: Parts, expected: str) -> None:
    ids = ProviderIDs.of(template, fixed)
    assert ids.write(parts) == expected
    assert expected.startswith(ids.prefix)
    assert ids.key(ids.read(expected)) == ids.key(parts)
    upper = (
        expected.partition("://")[0] + "://" + expected.partition("://")[2].replace("subscriptions", "SUBSCRIPTIONS")
    )
    assert same_provider_id(expected, upper)
    if upper.startswith(ids.prefix):
        assert ids.key(ids.read(upper)) == ids.key(parts)
    with pytest.raises(CloudProviderError):
        ids.read("other://1")


def test_an_id_without_what_it_needs_is_an_error_not_half_an_id() -> None:
    with pytest.raises(CloudProviderError, match="does not say the zone of machine i-1"):
        ProviderIDs.of("aws:///{zone}/{id}", {}).write(Parts(id="i-1"))


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("hcloud://{id}", 0), ("{driver}://{id}", 1), ("hcloud:{id}", 2), ("hcloud://{id}/x", 1),
        ("hcloud://{uuid}", 2),        ("hcloud://{id", 1), ("hcloud://a b/{id}", 1),
    ],
)  # fmt: skip
def test_templates(template: str, expected: int) -> None:
    assert len(template_problems(template)) == expected, template_problems(template)
