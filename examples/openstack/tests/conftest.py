"""OpenStack's own services, where OPENSTACK_VENV or OPENSTACK_LAB names them."""

from __future__ import annotations

from tests.lab.openstack.fixtures import openstack, pytest_collection_modifyitems

__all__ = ["openstack", "pytest_collection_modifyitems"]
