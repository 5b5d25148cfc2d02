"""iam-policy.json allows every call that the code makes, and no other."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

from aws_provider.clients import Clients
from botocore import xform_name

ROOT = Path(__file__).parents[1]
OF_OTHERS = {"AskedByElasticLoadBalancingForTheCaller", "TheFirstLoadBalancerOfAnAccount"}
"""The statements about what AWS asks for besides."""


def calls(clients: Clients) -> set[str]:
    """The actions of IAM for every API call in the source: methods and paginators of boto3's
    clients, by name."""
    actions: dict[tuple[str, str], str] = {}
    for attribute, prefix in (("ec2", "ec2"), ("elb", "elasticloadbalancing"), ("classic", "elasticloadbalancing")):
        names = getattr(clients, attribute).meta.service_model.operation_names
        actions |= {(attribute, xform_name(name)): f"{prefix}:{name}" for name in names}
    found = set()
    for path in (ROOT / "aws_provider").glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                client = ast.unparse(call.func.value).rpartition(".")[2]
                name = call.func.attr
                if name == "get_paginator":
                    name = ast.literal_eval(call.args[0])
                if (client, name) in actions:
                    found.add(actions[client, name])
    return found


def test_the_policy_is_what_the_code_needs(clients: Clients) -> None:
    statements = json.loads((ROOT / "iam-policy.json").read_text())["Statement"]
    allowed = {action for one in statements if one["Sid"] not in OF_OTHERS for action in one["Action"]}
    assert allowed == calls(clients)
    assert len(allowed) > 30, "the search finds nothing"


def test_nothing_that_is_there_can_be_tagged_into_the_cluster() -> None:
    """Whoever may tag what is not the cluster's may then delete it: the tag is all that the policy
    asks for."""
    statements = json.loads((ROOT / "iam-policy.json").read_text())["Statement"]
    found = [one.get("Condition") for one in statements if "elasticloadbalancing:AddTags" in one["Action"]]
    created = ["CreateListener", "CreateLoadBalancer", "CreateTargetGroup"]
    assert found == [
        {"StringEquals": {"elasticloadbalancing:CreateAction": created}},
        {"StringEquals": {"aws:ResourceTag/kubernetes.io/cluster/CLUSTER": "owned"}},
    ]


def test_the_readme_names_the_policys_placeholder() -> None:
    assert "CLUSTER" in re.findall(
        r"aws:ResourceTag/kubernetes\.io/cluster/(\w+)", (ROOT / "iam-policy.json").read_text()
    )
    assert "replace `CLUSTER`" in (ROOT / "README.md").read_text()
