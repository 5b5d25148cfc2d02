"""The gateway to the cloud (stage 5, cloud call): the only caller of vendor code.

Controllers hold a :class:`CloudCalls` (`facade`), which makes a `CloudCall` (`call`) of each
question; typed by `capabilities`, or many nodes at once by the `Fetch` of `nodes`. The `gateway`
runs it: `pool` (deadlines, parked keys, threads), `turns` and `limits` (who is next, and how fast),
`answer` and `snapshots` (what passes out and in), `errors` (what a call can end in), `outage`,
`health`, `metrics`, `options`.
"""

from typing import TYPE_CHECKING

from cloudprovider.internal.lazy import lazy

if TYPE_CHECKING:
    from controllers.cloudcalls.answer import Answer
    from controllers.cloudcalls.errors import (
        AnswerMissing,
        CallAborted,
        CallFailed,
        CallOverdue,
        CallsClosed,
        CloudCallError,
        InvalidAnswer,
    )
    from controllers.cloudcalls.facade import CloudCalls
    from controllers.cloudcalls.gateway import DryRunBackend
    from controllers.cloudcalls.health import CallHealth, OverdueCall
    from controllers.cloudcalls.limits import PRIORITY_DELETE, PRIORITY_NEW, PRIORITY_NORMAL, PRIORITY_SWEEP
    from controllers.cloudcalls.options import CloudCallOptions
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "Answer",
    "CloudCalls",
    "CloudCallOptions",
    "CallHealth",
    "OverdueCall",
    "DryRunBackend",
    # priorities
    "PRIORITY_DELETE",
    "PRIORITY_NEW",
    "PRIORITY_NORMAL",
    "PRIORITY_SWEEP",
    # errors
    "CloudCallError",
    "CallFailed",
    "CallAborted",
    "InvalidAnswer",
    "AnswerMissing",
    "CallsClosed",
    "CallOverdue",
]
