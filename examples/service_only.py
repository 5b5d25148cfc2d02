"""The service controller alone, in a program of your own: load balancers for Services, and nothing
else.

VPC_ID and SUBNET_ID say where the load balancers are built. KUBECONFIG names the cluster; in a pod
it is not needed. Runs until SIGTERM or SIGINT, then finishes what is under way. Exit codes: 0 after
a signal, 1 for everything else.
"""

import logging
import os
import sys

from samplecloud_provider.provider import SampleCloud

from cloudprovider import StopSignal
from controllers.app import hosting, run_until_signal
from controllers.service.controller import ServiceController
from controllers.service.registration import ServiceOptions


def run(stop: StopSignal) -> None:
    with hosting(SampleCloud.from_environment(os.environ), os.environ.get("KUBECONFIG")) as host:
        options = ServiceOptions(cluster_name=os.environ.get("CLUSTER_NAME", "kubernetes"))
        controller = ServiceController(host.clients, host.informers, host.cloud, options=options, metrics=host.metrics)
        host.run(controller, stop)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    sys.exit(run_until_signal(run, drain=30))
