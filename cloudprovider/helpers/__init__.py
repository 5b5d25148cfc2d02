"""Helpers for providers and controllers: pure functions over the official client's objects, under
flat names.

What is read of every object, taints and conditions of nodes too (`objects`), node addresses
(`addresses`), machines with an IPv6 network of their own (`hostnetworks`), labels and names, also a
volume's zones (`labels`), provider IDs (`providerid`), Services (`service`) and their annotations
(`annotations`), SSH keys (`sshkeys`), and time limits of HTTP clients (`timelimits`). The kinds of
values and IP addresses are in `cloudprovider.kinds` and `cloudprovider.ips`, which need nothing
else. None of them changes an argument; all may be called from many threads.
"""

from cloudprovider import ips, kinds
from cloudprovider.helpers import (
    addresses,
    annotations,
    hostnetworks,
    labels,
    objects,
    providerid,
    service,
    sshkeys,
    timelimits,
)
from cloudprovider.helpers.addresses import *
from cloudprovider.helpers.annotations import *
from cloudprovider.helpers.hostnetworks import *
from cloudprovider.helpers.labels import *
from cloudprovider.helpers.objects import *
from cloudprovider.helpers.providerid import *
from cloudprovider.helpers.service import *
from cloudprovider.helpers.sshkeys import *
from cloudprovider.helpers.timelimits import *
from cloudprovider.ips import *
from cloudprovider.kinds import *

__all__: list[str] = []
__all__ += addresses.__all__
__all__ += annotations.__all__
__all__ += hostnetworks.__all__
__all__ += ips.__all__
__all__ += kinds.__all__
__all__ += labels.__all__
__all__ += objects.__all__
__all__ += providerid.__all__
__all__ += service.__all__
__all__ += sshkeys.__all__
__all__ += timelimits.__all__
