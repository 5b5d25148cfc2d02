"""Which modules are mutated, and the tests that should notice: one line for each module, by its
folder."""

from __future__ import annotations

_FOLDERS: dict[str, tuple[str, str, dict[str, str]]] = {
    # name: (folder of the modules, folder of the tests, {module: test files without "test_", none
    # for all})
    "node": ("controllers/node", "tests/unit/node", {"changes": "", "reconcile": ""}),
    "nodeipam": (
        "controllers/nodeipam",
        "tests/unit/nodeipam",
        dict.fromkeys(("assigner", "allocations", "reconcile", "guards"), ""),
    ),
    "nodelifecycle": (
        "controllers/nodelifecycle",
        "tests/unit/nodelifecycle",
        {
            "changes": "changes reconcile hands_off",
            "deletion": "deletion reconcile sample",
            "memory": "ages reconcile replaced sample",
            "reconcile": "ages reconcile replaced sample two_writers",
            "triggers": "ages reconcile replaced",
            "writes": "two_writers reconcile hands_off replaced",
        },
    ),
    "route": ("controllers/route", "tests/unit/route", {"changes": "", "planning": "", "reconcile": ""}),
    "service": (
        "controllers/service",
        "tests/unit/service",
        {
            "changes": "",
            "decide": "decide",
            "execute": "reconcile failing removal checks two_writers ownership restarts",
            "reconcile": "",
            "records": "gathering reconcile failing",
            "remove": "removal renames failing reconcile",
            "targets": "targets gathering",
        },
    ),
    "cloudcalls": (
        "controllers/cloudcalls",
        "tests/unit/cloudcalls",
        {"call": "callqueue limits", "nodes": "batching fetch", "pool": "gateway fetch"},
    ),
    "queue": (
        "controllers/runtime/queue",
        "tests/unit/runtime/queue",
        dict.fromkeys(("workqueue", "keys"), "workqueue workqueue_model workqueue_threads workqueue_metrics"),
    ),
    "election": (
        "controllers/runtime/election",
        "tests/unit/runtime/election",
        dict.fromkeys(("elector", "fence", "record", "watching"), ""),
    ),
    "cache": ("controllers/runtime/cache", "tests/unit/runtime/cache", {"store": "", "watch": ""}),
    "serving": (
        "controllers/endpoints",
        "tests/unit/endpoints",
        {"access": "authentication authorization clientca secure"},
    ),
    "httpserver": (
        "controllers/httpserver",
        "tests/unit/httpserver",
        {"connections": "server bodies", "messages": "server bodies subject", "stream": "server"},
    ),
    "internal": (
        "cloudprovider/internal",
        "tests/unit/cloudprovider",
        {"backoff": "backoff", "jsonpatch": "patching", "patching": "patching"},
    ),
    "plan": ("controllers/plan", "tests/unit/plan", {"describing": "plan cluster"}),
}

TARGETS: dict[str, tuple[str, tuple[str, ...]]] = {
    f"{name}/{module}": (
        f"{folder}/{module}.py",
        tuple(f"{tests}/test_{test}.py" for test in chosen.split()) or (tests,),
    )
    for name, (folder, tests, modules) in _FOLDERS.items()
    for module, chosen in modules.items()
}
TARGETS["cloudcalls/answers"] = ("controllers/cloudcalls/answers.py", ("tests/unit/node/test_recreated.py",))
"""By name: the module, and the paths of its tests."""
TARGETS["answers"] = (
    "cloudprovider/checks/answers.py",
    (
        "tests/unit/cloudprovider/test_answers.py",
        "tests/unit/cloudcalls/test_answer.py",
        "tests/unit/cloudcalls/test_podcidrs.py",
    ),
)
