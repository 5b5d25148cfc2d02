"""Which of Kubernetes' tests are run, and which of them cannot pass here, with the reason.

A set is chosen by the suite's own labels.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen


@frozen
class SpecSet:
    """Tests that run in one process of the suite, and are one table of the page."""

    name: str
    title: str
    labels: str
    """As for ``-ginkgo.label-filter``."""
    skip: str = ""
    """A regular expression: tests whose names match are left out."""
    focus: str = ""
    """A regular expression: only tests whose names match; all, where it is empty."""
    pass_as: str = ""
    """The provider's name that the tests see, where they run on a few named clouds only."""
    last: bool = False
    """Whether the cluster is not whole afterwards."""


SETS = (
    SpecSet("load-balancers", "Load balancers", "Feature: containsAny LoadBalancer"),
    SpecSet(
        "conformance",
        "Services and the network of pods",
        "sig-network && Conformance",
        # They create or change objects and send no packet, or want the image of a web server.
        skip=r"API operations|should create Endpoints( and EndpointSlices)? for Pods|lifecycle of an Endpoint|"
        r"that matches no pods|service status lifecycle|from listing all namespaces|collection of services|"
        r"mirror a custom|should not be very high|API Server|secure master",
    ),
    SpecSet(
        "more",
        "More of routes and load balancers",
        "sig-network && !Conformance && !Disruptive",
        focus="NoSNAT|on Type LoadBalancer|externalTrafficPolicy=Local for type=NodePort|"
        "terminating endpoints when there are no ready endpoints with external",
    ),
    SpecSet(
        "nodes",
        "A machine that is deleted in the cloud",
        "Feature: containsAny CloudProvider",
        pass_as="aws",
        last=True,
    ),
)

CANNOT_PASS: Mapping[str, str] = {}
"""Parts of tests' names, and why each cannot pass on this cloud. `make e2e` fails where one of them
passes."""
