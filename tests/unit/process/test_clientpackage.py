"""The package `kubernetes` without its `__init__.py` is the same package to everybody who imports
it."""

from __future__ import annotations

import re
import subprocess
import sys

LIGHTLY = "from controllers.process.startup import import_lightly; import_lightly()\n"


def run(code: str, lightly: bool = True) -> str:
    """What a fresh Python prints."""
    done = subprocess.run(
        [sys.executable, "-c", (LIGHTLY if lightly else "") + code], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_models_are_imported_without_the_rest_and_stay_the_same_classes() -> None:
    run("""
import sys
from kubernetes.client.models.v1_node import V1Node
assert "kubernetes.config" not in sys.modules
import kubernetes, kubernetes.client, kubernetes.client.models.v1_node
assert "kubernetes.config" not in sys.modules
assert kubernetes.client.V1Node is V1Node is kubernetes.client.models.v1_node.V1Node
from kubernetes import client, config, watch
from kubernetes.client import V1Node as Again
assert Again is V1Node and client.V1Node is V1Node
assert config is kubernetes.config is sys.modules["kubernetes.config"]
assert kubernetes.__version__ == client.__version__
assert type(kubernetes) is type(sys), "its __init__.py has run: an ordinary module"
assert kubernetes.client is client
""")


def test_it_has_the_same_names_as_ever_and_refuses_the_same_others() -> None:
    code = """
import kubernetes, json, sys
names = {name: repr(getattr(kubernetes, name)) for name in dir(kubernetes)}
print(json.dumps({n: v for n, v in names.items() if n not in ("__builtins__", "__loader__", "__spec__")}, indent=1))
try:
    kubernetes.nothing
except AttributeError as error:
    print(error)
try:
    from kubernetes import nothing
except ImportError as error:
    print(error)
try:
    import kubernetes.nothing
except ModuleNotFoundError as error:
    print(error)
space = {}
exec("from kubernetes import *", space)
print(sorted(space))
"""
    assert run(code) == run(code, lightly=False)


def test_a_vendors_own_import_of_the_package_gets_all_of_it() -> None:
    """As a provider writes it, after the program has begun: every part, and ordinary models."""
    code = """
import kubernetes
from kubernetes import client, config, dynamic, leaderelection, stream, utils, watch
parts = [client, config, dynamic, leaderelection, stream, utils, watch]
assert all(getattr(kubernetes, part.__name__.partition(".")[2]) is part for part in parts)
node = client.V1Node(metadata=client.V1ObjectMeta(name="n"))
print(sorted(name for name in dir(client) if not name.startswith("_")))
print(client.CoreV1Api(client.ApiClient()).api_client.sanitize_for_serialization(node))
print(config.ConfigException.__mro__, watch.Watch, stream.stream, utils.create_from_dict)
print(dynamic.DynamicClient, leaderelection.__name__)
"""
    ours, ordinary = run(code), run(code, lightly=False)
    assert [*map(without_address, ours.splitlines())] == [*map(without_address, ordinary.splitlines())]


def without_address(line: str) -> str:
    """A line without where in memory a function is."""
    return re.sub(r"0x[0-9a-f]+", "0x", line)


def test_many_threads_that_import_its_parts_at_once_find_the_same_modules() -> None:
    """In every order, without waiting for each other in a circle."""
    run("""
import importlib, itertools, sys, threading
sys.setswitchinterval(1e-5)
asked = ["client", "config", "dynamic", "watch", "stream", "utils", "leaderelection", "__version__", "__project__"]
together = threading.Barrier(3 * len(asked))
found, failed = [], []
def ask(name, way):
    import kubernetes
    together.wait()
    try:
        if way == 1 and not name.startswith("_"):
            importlib.import_module("kubernetes." + name)
        elif way == 2:
            exec(f"from kubernetes import {name}")
        found.append((name, id(getattr(kubernetes, name))))
    except BaseException as error:
        failed.append(f"{name}: {error!r}")
threads = [threading.Thread(target=ask, args=(n, w), daemon=True) for n, w in itertools.product(asked, range(3))]
[thread.start() for thread in threads]
[thread.join(60) for thread in threads]
assert not failed, failed
assert not any(thread.is_alive() for thread in threads), "they wait for each other"
assert len({name for name, _ in found}) == len({*found}) == len(asked)
""")


def test_nothing_happens_where_it_is_imported_already() -> None:
    run(
        """
import sys, kubernetes
before = sys.modules["kubernetes"]
from controllers.process.startup import import_lightly
import_lightly()
assert sys.modules["kubernetes"] is before and type(before) is type(sys)
""",
        lightly=False,
    )


def test_models_are_built_when_they_are_used_and_classes_of_others_at_once() -> None:
    code = """
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_spec import V1NodeSpec
from pydantic import BaseModel

class Own(BaseModel):
    a: int

print(Own.__pydantic_complete__, V1Node.__pydantic_complete__, V1NodeSpec.__pydantic_complete__)
print(V1Node.from_dict({"metadata": {"name": "n"}, "spec": {"podCIDR": "10.0.0.0/24"}}).spec.pod_cidr)
try:
    V1Node.from_dict({"metadata": {"name": 1}})
except ValueError as error:
    print(type(error).__name__, V1Node.__pydantic_complete__)
"""
    assert run(code) == "True False False\n10.0.0.0/24\nValidationError True\n"


def test_a_pydantic_whose_threads_could_meet_at_an_unfinished_class_builds_them_at_once() -> None:
    code = """
import pydantic
pydantic.VERSION = "2.13.9"
from kubernetes.client.models.v1_node import V1Node
print(V1Node.__pydantic_complete__)
"""
    assert run(code) == "True\n"
