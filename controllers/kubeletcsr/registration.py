"""kubelet-serving-csr in the manager: its permissions and its entry. It has no flags.

Off by default: Go's manager has none, and most clusters let kubelets sign their own certificates.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from controllers.options import drain_timeout_option
from controllers.registration.entry import ControllerEntry, Rule, built, event_rule, informers

_GROUP: Final = "certificates.k8s.io"
_CONSEQUENCE: Final = "kubelets that ask for serving certificates get none"


@frozen(kw_only=True)
class KubeletCSROptions:
    """How the controller works. Frozen."""

    drain_timeout: float = drain_timeout_option()


ENTRY = ControllerEntry(
    name="kubelet-serving-csr",
    construct=built("controllers.kubeletcsr.controller:KubeletCSRController", KubeletCSROptions),
    needs=lambda cloud: cloud.has_instances,
    lacking="cannot be asked about nodes, so it vouches for no address",
    module="controllers.kubeletcsr.controller",
    informers=informers("KUBELET_SERVING_REQUESTS", "NODES"),
    options=(KubeletCSROptions,),
    on_by_default=False,
    rules=(
        Rule(
            group=_GROUP,
            resource="certificatesigningrequests",
            verbs=("get", "list", "watch"),
            consequence=_CONSEQUENCE,
        ),
        Rule(
            group=_GROUP,
            resource="certificatesigningrequests/approval",
            verbs=("patch",),
            consequence=_CONSEQUENCE,
        ),
        Rule(
            group=_GROUP,
            resource="signers",
            verbs=("approve",),
            names=("kubernetes.io/kubelet-serving",),
            consequence=_CONSEQUENCE,
        ),
        Rule(resource="nodes", verbs=("list", "watch"), consequence=_CONSEQUENCE),
        event_rule("no Event says why a kubelet has no serving certificate"),
    ),
)
