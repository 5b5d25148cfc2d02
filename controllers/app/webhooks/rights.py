"""What the webhook server reads and writes in the cluster, and what does not work without it.

Stage: before the first one, pure data. It goes to the RBAC manifest (`controllers/app/rbac.py`) and to the check at the
start (`controllers/app/permissions/check.py`), where webhooks are served with a self-signed certificate.
"""

from __future__ import annotations

from typing import Final

from controllers.app.entry import Rule

__all__ = ["KINDS", "NAME", "NAMESPACE", "WEBHOOK_RULES"]

NAME: Final = "cloud-controller-manager-webhook"
"""Of the Service, of the Secret with the certificate, and of the webhook configurations."""
NAMESPACE: Final = "kube-system"
KINDS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_GROUP: Final = "admissionregistration.k8s.io"

WEBHOOK_RULES: Final = (
    Rule(
        resource="secrets",
        verbs=("get", "create", "patch"),
        namespace=NAMESPACE,
        names=(NAME,),
        consequence="replicas share no certificate for webhooks, and the API server trusts the leader's alone",
    ),
    *(
        Rule(
            resource=kind,
            verbs=("get", "patch"),
            group=_GROUP,
            names=(NAME,),
            consequence="the API server does not trust the webhook server's self-signed certificate",
        )
        for kind in KINDS
    ),
)
