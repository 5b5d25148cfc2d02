"""Time limits for a provider's HTTP client that end before the host's deadline (stage 5, cloud
call).

The host gives up a call at its deadline, and its thread is lost until the call returns. So a
client's own limit must be shorter: then the call fails with the client's error, which says more,
and the thread is free again::

    session.get(url, timeout=time_limits())                          # requests: (connect, read)
    http.request("GET", url, timeout=urllib3.Timeout(time_limit()))  # urllib3: the whole request
    client.get(url, timeout=time_limit(calls=2))                     # httpx: connect and read, each at most this

The time left comes from `current_call()`. May be called from any thread; outside of a provider's
call there is no deadline.
"""

from __future__ import annotations

from cloudprovider.call import current_call
from cloudprovider.errors import CallDeadlineExceeded

__all__ = ["time_limit", "time_limits"]


def time_limit(*, calls: int = 1, most: float = 30.0, margin: float = 1.0, least: float = 0.5) -> float:
    """Seconds that the next request may take: at most `most`, and `margin` less than is left of the
    host's call.

    `calls` is the number of requests that are still to be made, this one included: each gets an
    equal share of what is left when it is asked for. Raises `CallCancelled`, and
    `CallDeadlineExceeded` at once where less than `least` is left: a request that begins then would
    be cut off in the middle. Raises ValueError for numbers that make no sense.
    """
    if calls < 1 or not 0 < least <= most or margin < 0:
        raise ValueError(f"time_limit(calls={calls}, most={most}, margin={margin}, least={least}) makes no sense")
    call = current_call()
    call.check()
    remaining = call.remaining()
    if remaining is None:
        return most
    limit = min(most, (remaining - margin) / calls)
    # Not begun: cut off in the middle, nobody would know whether the cloud has done it.
    if limit < least:
        each = f" for each of {calls} requests" if calls > 1 else ""
        raise CallDeadlineExceeded(
            f"{remaining:.3g} s are left of this call: less than {least:g} s{each} and a margin of {margin:g} s"
        )
    return limit


def time_limits(
    *, calls: int = 1, connect: float = 5.0, most: float = 30.0, margin: float = 1.0, least: float = 0.5
) -> tuple[float, float]:
    """(connect, read) in seconds, which together are one `time_limit`: for clients that count both
    apart, as requests and botocore do. Connecting gets at most `connect`, and at most half. Raises
    as `time_limit` does."""
    if connect <= 0:
        raise ValueError(f"connect must be a positive number of seconds, not {connect}")
    # Together they are the limit: a client spends first the one and then the other.
    whole = time_limit(calls=calls, most=most, margin=margin, least=least)
    first = min(connect, whole / 2)
    return first, whole - first
