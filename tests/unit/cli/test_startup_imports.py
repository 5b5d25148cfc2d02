"""What is imported when: --help and bad flags are answered at once, and a manager writes its first
node before anything is imported that this does not need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from cloudprovider.testing.apiserver import EmbeddedAPIServer

HEAVY = (
    "cloudprovider.interface",
    "cloudprovider.helpers",
    "kubernetes",
    "prometheus_client",
    "ssl",
    "http.client",
    "urllib3",
    "asyncio",
    "pydantic",
)

NOT_FOR_A_NODE = (
    # of the official client, what `kubernetes/__init__.py` imports, and clients for vendors
    "kubernetes.client.api_client",
    "kubernetes.client.configuration",
    "kubernetes.client.rest",
    "kubernetes.config",
    "kubernetes.dynamic",
    "kubernetes.leaderelection",
    "kubernetes.stream",
    "kubernetes.utils",
    "kubernetes.watch",
    "controllers.runtime.api.vendorclient",
    "dateutil",
    "oauthlib",
    "requests",
    "requests_oauthlib",
    "urllib3",
    "websocket",
    # models of kinds of which there are no objects
    "kubernetes.client.models.v1_lease",
    "kubernetes.client.models.v1_namespace",
    "kubernetes.client.models.v1_persistent_volume",
    "kubernetes.client.models.v1_pod_spec",
    "kubernetes.client.models.v1_service",
    # what the flags, or the provider, leave off
    "controllers.kubeletcsr.controller",
    "controllers.nodeipam.controller",
    "controllers.plan",
    "controllers.route.controller",
    "controllers.runtime.api.execplugin",
    "controllers.service.controller",
    "controllers.sshkeys.controller",
    "controllers.volumelabels.controller",
    "controllers.webhooks.router",
    "controllers.webhooks.serving",
    "cryptography",
    # what only --help or a map's options need
    "argparse",
    "encodings.idna",
    "google.protobuf.descriptor_pb2",
    # other commands, and tests
    "cloudprovider.commands",
    "cloudprovider.testing",
    "controllers.cli.rbac",
    "controllers.cli.reference",
    "controllers.testing",
    "pytest",
    # frameworks
    "asyncio",
    "multiprocessing",
)

PROVIDER = """
import json, os, sys, threading
from cloudprovider import InstanceMetadata, InstancesV2, Interface, register_cloud_provider
from controllers.app import main

class Cloud(Interface, InstancesV2):
    def provider_name(self): return "acme"
    def instances_v2(self): return self
    def instance_exists(self, node): return True
    def instance_shutdown(self, node): return False
    def instance_metadata(self, node):
        from controllers.runtime.api.transport import Transport
        send = Transport.exchange
        def exchange(self, method, path, *rest):
            if method in ("PATCH", "PUT") and path.startswith("/api/v1/nodes/"):
                import ctypes
                libc = ctypes.CDLL(None)
                if hasattr(libc, "malloc_info"):
                    libc.fdopen.restype = ctypes.c_void_p
                    err = ctypes.c_void_p(libc.fdopen(2, b"w"))
                    libc.malloc_info(0, err)
                    libc.fflush(err)
                print(json.dumps(sorted(sys.modules)), flush=True)
                os._exit(0)
            return send(self, method, path, *rest)
        Transport.exchange = exchange
        from kubernetes.client.models.v1_node_address import V1NodeAddress
        address = V1NodeAddress(type="InternalIP", address="10.0.0.1")
        return InstanceMetadata("acme://" + node.metadata.name, node_addresses=[address])

register_cloud_provider("acme", lambda config: Cloud())
main(sys.argv[1:])
"""


def test_reading_every_flag_imports_no_controller_and_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "import controllers.cli.main\nfrom controllers.cli.helptext import help_text\n"
        "from controllers.catalog import CATALOG\n"
        "from controllers.flags.parse import table\n"
        "assert '--load-balancer-node-window' in help_text('x', table(CATALOG))\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert "controllers.service.registration" in loaded
    assert sorted(loaded & {*HEAVY}) == []
    assert sorted(name for name in loaded if name.endswith((".controller", ".reconcile", ".runtime"))) == []


def test_the_first_node_is_written_before_anything_is_imported_that_this_does_not_need(tmp_path: Path) -> None:
    """It fails where an import was added on the way to the first write. Import inside the function
    that needs it, or, where every start needs it, measure what it costs before this list gets
    shorter."""
    with EmbeddedAPIServer() as server:
        server.delete("services", "kubernetes")  # the server made it
        server.create({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "node-0"},
            "spec": {
                "taints": [{
                    "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule",
                }]
            },
        })  # fmt: skip
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        flags = ["--cloud-provider=acme", f"--kubeconfig={kubeconfig}", "--secure-port=0"]
        done = subprocess.run(
            [sys.executable, "-c", PROVIDER, *flags],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=120,
            env={
                name: value for name, value in os.environ.items() if name not in ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")
            },
        )
    assert done.stdout, done.stderr
    loaded = set(json.loads(done.stdout))
    assert {"controllers.node.controller", "kubernetes.client.models.v1_node"} <= loaded
    wrong = [name for name in NOT_FOR_A_NODE if any(found == name or found.startswith(f"{name}.") for found in loaded)]
    assert wrong == []
    assert done.stderr.count("<heap nr=") in (0, 1), "all threads share one heap, where the C library is glibc"
