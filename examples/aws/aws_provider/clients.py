"""boto3's clients, with time limits that follow the provider call under way.

One session reads the credentials: from the environment, the shared file, a web identity or the
machine's role, as everywhere with boto3. Clients are safe for many threads, sessions are not, so
clients are made under a lock and kept.

botocore fixes a client's time limits when it is made. So there is one set of clients for each of
`LIMITS`, made when it is first needed, and `ec2` and `elb` give the one whose requests take at most
half of what is left of the call. A request that could no longer end in time is not sent, be it the
tenth page of a list. Nothing is tried twice here: the host does that, and knows when.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from attrs import frozen
from botocore.config import Config
from botocore.utils import IMDSFetcher, InstanceMetadataRegionFetcher

from cloudprovider import CallDeadlineExceeded, current_call

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_elbv2.client import ElasticLoadBalancingv2Client

LIMITS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""How long one request may take, in seconds: a quarter to connect, the rest to answer."""

_CONNECTIONS = 50


@frozen
class _Made:
    ec2: EC2Client
    elb: ElasticLoadBalancingv2Client
    classic: Any


class Clients:
    """The way to the APIs of EC2 and of Elastic Load Balancing v2 in one region. Thread-safe."""

    def __init__(self, region: str = "") -> None:
        """With no region: the environment's or the shared file's, else the one of the machine that
        this runs on."""
        core = botocore.session.Session()
        # What fetches credentials from STS makes clients of its own: they get these limits.
        core.set_default_client_config(Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1}))
        self._session = boto3.session.Session(botocore_session=core, region_name=region or None)
        self.region: str = self._session.region_name or InstanceMetadataRegionFetcher().retrieve_region() or ""
        """ "" where nobody knows it."""
        names = ("ec2_metadata_service_endpoint", "ec2_metadata_service_endpoint_mode")
        found = IMDSFetcher(config={name: core.get_config_variable(name) for name in names}).get_base_url()
        self.metadata_endpoint: str = found
        """Where the metadata service of this machine would be."""
        self._lock = threading.Lock()
        self._made: dict[float, _Made] = {}
        # At DEBUG botocore logs signed headers and whole answers, credentials among them: whatever
        # -v says, not those.
        logging.getLogger("botocore").setLevel(logging.INFO)

    @property
    def ec2(self) -> EC2Client:
        """EC2, for the next request. Raises `CallInterrupted` when the call under way is over."""
        return self._for_this_call().ec2

    @property
    def elb(self) -> ElasticLoadBalancingv2Client:
        """Elastic Load Balancing v2, for the next request. Raises `CallInterrupted` when the call
        under way is over."""
        return self._for_this_call().elb

    @property
    def classic(self) -> Any:
        """Elastic Load Balancing of the first version, for Classic Load Balancers, as `elb`. They
        are looked for, never changed."""
        return self._for_this_call().classic

    def _for_this_call(self) -> _Made:
        call = current_call()
        call.check()
        left = call.remaining()
        limit = max((limit for limit in LIMITS if left is None or limit <= left / 2), default=LIMITS[0])
        with self._lock:
            if limit not in self._made:
                self._made[limit] = self._make(limit)
            return self._made[limit]

    def _make(self, limit: float) -> _Made:
        config = Config(
            connect_timeout=limit / 4,
            read_timeout=limit * 3 / 4,
            retries={"total_max_attempts": 1, "mode": "standard"},
            max_pool_connections=_CONNECTIONS,
        )
        made = _Made(
            self._session.client("ec2", region_name=self.region, config=config),
            self._session.client("elbv2", region_name=self.region, config=config),
            self._session.client("elb", region_name=self.region, config=config),
        )
        for client in (made.ec2, made.elb, made.classic):
            client.meta.events.register_first("before-send", _sends_only_in_time(limit))
        return made


def _sends_only_in_time(limit: float) -> Callable[..., None]:
    """A handler of botocore's event "before-send" that raises where the request would outlast the
    call under way."""

    def check(**_: object) -> None:
        call = current_call()
        call.check()
        left = call.remaining()
        if left is not None and left < limit:
            raise CallDeadlineExceeded(f"{left:.1f} s are left of this call; a request to AWS may take {limit:g} s")

    return check
