"""What a vendor subclasses: every scenario of the provider level in one class."""

from __future__ import annotations

from cloudprovider.testing.conformance.badanswers import BadAnswerScenarios
from cloudprovider.testing.conformance.batches import BatchScenarios
from cloudprovider.testing.conformance.instances import InstanceScenarios
from cloudprovider.testing.conformance.keptbalancers import KeptLoadBalancerScenarios
from cloudprovider.testing.conformance.likemachines import LikeMachineScenarios
from cloudprovider.testing.conformance.loadbalancerfailures import LoadBalancerFailureScenarios
from cloudprovider.testing.conformance.loadbalancers import LoadBalancerScenarios
from cloudprovider.testing.conformance.localinstance import LocalInstanceScenarios
from cloudprovider.testing.conformance.olderinstances import OlderInstanceScenarios, ZoneScenarios
from cloudprovider.testing.conformance.ownedloadbalancers import OwnedLoadBalancerScenarios, OwnedResourceScenarios
from cloudprovider.testing.conformance.podcidrs import PodCIDRScenarios
from cloudprovider.testing.conformance.routes import RouteScenarios
from cloudprovider.testing.conformance.slowclouds import SlowCloudScenarios
from cloudprovider.testing.conformance.sshkeys import SSHKeyScenarios
from cloudprovider.testing.conformance.targets import TargetScenarios
from cloudprovider.testing.conformance.volumes import ClusterScenarios, VolumeScenarios
from cloudprovider.testing.conformance.whole import WholeScenarios


class ProviderConformance(
    WholeScenarios,
    InstanceScenarios,
    BatchScenarios,
    OlderInstanceScenarios,
    SSHKeyScenarios,
    ZoneScenarios,
    LoadBalancerScenarios,
    LoadBalancerFailureScenarios,
    KeptLoadBalancerScenarios,
    TargetScenarios,
    OwnedLoadBalancerScenarios,
    OwnedResourceScenarios,
    RouteScenarios,
    PodCIDRScenarios,
    VolumeScenarios,
    ClusterScenarios,
    LocalInstanceScenarios,
    LikeMachineScenarios,
    SlowCloudScenarios,
    BadAnswerScenarios,
):
    """The provider alone, without a cluster. Set `provider_name` and `features`, and write the
    fixture `lab`."""
