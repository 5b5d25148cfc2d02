"""The configuration files of the services: SQLite for every database, no message broker, and
everything on this machine's loopback."""

from __future__ import annotations

from pathlib import Path

SERVICES = {
    "placement": "placement", "image": "glance", "network": "neutron", "compute": "nova", "load-balancer": "octavia",
}  # fmt: skip
"""By their types in Keystone's catalog. Keystone itself is no part of it."""
ADMIN_PASSWORD = "s3cret-of-the-tests-0c4e"
REGION = "RegionOne"

_EVERYWHERE = """
[DEFAULT]
transport_url = fake:/
state_path = {folder}
log_file = {folder}/{name}.log
use_stderr = false
host = compute-1
report_interval = 60
service_down_time = 3600
[database]
connection = sqlite:///{folder}/{name}.sqlite?timeout=60
sqlite_synchronous = false
[oslo_concurrency]
lock_path = {folder}/locks
[oslo_messaging_notifications]
driver = noop
"""
_LOGIN = """
www_authenticate_uri = {keystone}
auth_url = {keystone}
auth_type = password
username = admin
password = {password}
project_name = admin
user_domain_id = default
project_domain_id = default
region_name = RegionOne
"""
_OWN = {
    "keystone": "[fernet_tokens]\nkey_repository = {folder}/fernet\n[credential]\nkey_repository = {folder}/credential",
    "placement": """
[placement_database]
connection = sqlite:///{folder}/placement.sqlite?timeout=60
[api]
auth_strategy = keystone
[keystone_authtoken]{login}""",
    "glance": """
[DEFAULT]
enabled_backends = local:file
[glance_store]
default_backend = local
[local]
filesystem_store_datadir = {folder}/images
[paste_deploy]
flavor = keystone
config_file = {etc}/glance/glance-api-paste.ini
[keystone_authtoken]{login}""",
    "neutron": """
[DEFAULT]
core_plugin = ml2
service_plugins = router,trunk
api_paste_config = {etc}/neutron/api-paste.ini
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
max_routes = 1000
[quotas]
quota_port = -1
quota_floatingip = -1
quota_security_group = -1
quota_security_group_rule = -1
quota_router_route = -1
[ml2]
type_drivers = local
project_network_types = local
mechanism_drivers = openvswitch
extension_drivers = port_security
[keystone_authtoken]{login}""",
    # More threads than four fight for the one hypervisor's generation in Placement.
    "nova": """
[DEFAULT]
compute_driver = fake.FakeDriver
executor_thread_pool_size = 4
max_concurrent_builds = 4
[quota]
instances = -1
cores = -1
ram = -1
[api_database]
connection = sqlite:///{folder}/nova_api.sqlite?timeout=60
[scheduler]
discover_hosts_in_cells_interval = 5
[filter_scheduler]
track_instance_changes = false
[placement]{login}
[glance]{login}
[neutron]{login}
[service_user]{login}
send_service_user_token = true
[keystone_authtoken]{login}""",
    # Amphorae and their machines are no-ops; ports, addresses and security groups are Neutron's.
    "octavia": """
[api_settings]
auth_strategy = keystone
[certificates]
cert_generator = local_cert_generator
ca_certificate = {folder}/ca.crt
ca_private_key = {folder}/ca.key
cert_manager = local_cert_manager
[controller_worker]
amphora_driver = amphora_noop_driver
compute_driver = compute_noop_driver
image_driver = image_noop_driver
volume_driver = volume_noop_driver
network_driver = allowed_address_pairs_driver
amp_boot_network_list = {management}
amp_flavor_id = 1
amp_image_tag = amphora
client_ca = {folder}/ca.crt
loadbalancer_topology = SINGLE
[haproxy_amphora]
api_db_commit_retry_initial_delay = 1
[networking]
max_retries = 2
[health_manager]
heartbeat_key = insecure
[service_auth]{login}
[neutron]
region_name = RegionOne
[nova]
region_name = RegionOne
[glance]
region_name = RegionOne
[keystone_authtoken]{login}""",
}


def path(folder: Path, name: str) -> Path:
    """Where the service looks for its file."""
    return folder / ("glance-api.conf" if name == "glance" else f"{name}.conf")


def write(folder: Path, name: str, venv: Path, keystone: str, management: str = "") -> None:
    """Write a service's file. `keystone` is the URL of version 3; `management` the network of
    Octavia's amphorae."""
    login = _LOGIN.format(keystone=keystone, password=ADMIN_PASSWORD)
    facts = {"folder": folder, "etc": venv / "etc", "login": login, "management": management}
    path(folder, name).write_text((_EVERYWHERE + _OWN[name]).format(name=name, **facts))
