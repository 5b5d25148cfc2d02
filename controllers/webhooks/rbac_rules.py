"""What the webhook server reads and writes in the cluster, and what does not work without it. Data.

RBAC can limit neither what is written into a webhook configuration, nor the names of new Secrets.
So the manifests make the Secret (`SECRET`), no permission to create one is granted, and a policy
leaves the manager's account the caBundle alone (`policy_for`)."""

from __future__ import annotations

from typing import Final

from controllers.registration.entry import Rule

NAME: Final = "cloud-controller-manager-webhook"
"""Of the Service, of the Secret with the certificate, and of the webhook configurations."""
NAMESPACE: Final = "kube-system"
KINDS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_GROUP: Final = "admissionregistration.k8s.io"

CONFIGURATION_RULES: Final = tuple(
    Rule(
        resource=kind,
        verbs=("get", "patch"),
        group=_GROUP,
        names=(NAME,),
        consequence="the API server does not trust the webhook server's self-signed certificate",
    )
    for kind in KINDS
)
"""For any self-signed certificate."""
WEBHOOK_RULES: Final = (
    Rule(
        resource="secrets",
        verbs=("get", "patch"),
        namespace=NAMESPACE,
        names=(NAME,),
        consequence="replicas share no certificate for webhooks, and the API server trusts the leader's alone",
    ),
    *CONFIGURATION_RULES,
)
"""For the one that all replicas share."""

SECRET: Final = f"""\
# Without data: the leader fills it, and applying this again leaves what it wrote.
apiVersion: v1
kind: Secret
metadata:
  name: {NAME}
  namespace: {NAMESPACE}
"""


def policy_for(user: str) -> str:
    """The ValidatingAdmissionPolicy of this user of the API server, and its binding, in YAML. Pure.

    Kubernetes has them from 1.30 on.
    """
    return f"""\
# RBAC cannot limit what is written: this leaves the manager the caBundle of webhooks that are there, and nothing else.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {NAME}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [{_GROUP}]
        apiVersions: ["*"]
        resources: [{", ".join(KINDS)}]
        operations: [CREATE, UPDATE]
  matchConditions:
    - name: by-the-manager
      expression: request.userInfo.username == "{user}"
  variables:
    - name: before
      expression: oldObject.?webhooks.orValue([])
    - name: after
      expression: object.?webhooks.orValue([])
  validations:
    - message: the cloud-controller-manager creates no webhook configurations
      expression: request.operation == "UPDATE"
    - message: of a webhook the cloud-controller-manager may change the caBundle, and nothing else
      expression: >-
        variables.before.size() == variables.after.size() &&
        variables.after.all(new, variables.before.exists(old, old.name == new.name &&
          {_alike("old", "new", "clientConfig")} &&
          {_alike("old.clientConfig", "new.clientConfig", "caBundle")}))
    - message: of a webhook configuration's metadata the cloud-controller-manager may change nothing
      expression: >-
        {_alike("oldObject.metadata", "object.metadata", "resourceVersion", "generation", "managedFields")}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {NAME}
spec:
  policyName: {NAME}
  validationActions: [Deny]
"""


def _alike(old: str, new: str, *but: str) -> str:
    """The CEL expression of two objects that are equal but for these fields."""
    others = str(list(but)).replace("'", '"')
    return (
        f"dyn({new}).all(k, k in {others} || (k in dyn({old}) && dyn({old})[k] == dyn({new})[k])) && "
        f"dyn({old}).all(k, k in {others} || k in dyn({new}))"
    )
