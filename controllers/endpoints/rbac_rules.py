"""The permissions that HTTPS serving needs, and what does not work without each. Pure data.

They are those of the ClusterRole system:auth-delegator and of the Role
extension-apiserver-authentication-reader, and no more.
"""

from __future__ import annotations

from typing import Final

from controllers.registration.entry import Rule

TOKEN_RULE: Final = Rule(
    resource="tokenreviews",
    verbs=("create",),
    group="authentication.k8s.io",
    consequence="nobody can read metrics and the status pages over HTTPS with a token",
)
ACCESS_RULE: Final = Rule(
    resource="subjectaccessreviews",
    verbs=("create",),
    group="authorization.k8s.io",
    consequence="only system:masters can read metrics and the status pages over HTTPS",
)
LOOKUP_RULE: Final = Rule(
    resource="configmaps",
    verbs=("get",),
    namespace="kube-system",
    names=("extension-apiserver-authentication",),
    consequence="the cluster's client certificates are not accepted over HTTPS",
)
SERVING_RULES: Final = (TOKEN_RULE, ACCESS_RULE, LOOKUP_RULE)
"""It works without, a little worse: so the manifest grants them, and who asks warns when one is
missing."""
