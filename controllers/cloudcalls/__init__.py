"""The gateway to the cloud (stage 5, cloud call): the only caller of vendor code.

Controllers hold a :class:`CloudCalls` (`facade`). Behind it: `gateway`, `pool`, `vendorthread` and `jobs` (deadlines,
parked keys), `limits` (rate and priorities), `fetch`, `batching`, `answercache` and `instances` (questions about
nodes), `validate` and `snapshots` (what passes in and out), `capabilities` (typed wrappers), `errors` (what a call can
end in), `metrics`, `options`.
"""

from typing import TYPE_CHECKING

from controllers.lazy import lazy

if TYPE_CHECKING:
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
    from controllers.cloudcalls.gateway import CallHealth, OverdueCall
    from controllers.cloudcalls.limits import PRIORITY_DELETE, PRIORITY_NEW, PRIORITY_NORMAL, PRIORITY_SWEEP
    from controllers.cloudcalls.options import CloudCallOptions
    from controllers.cloudcalls.standin import StandIn
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "errors": [
                "AnswerMissing",
                "CallAborted",
                "CallFailed",
                "CallOverdue",
                "CallsClosed",
                "CloudCallError",
                "InvalidAnswer",
            ],
            "facade": ["CloudCalls"],
            "gateway": ["CallHealth", "OverdueCall"],
            "limits": ["PRIORITY_DELETE", "PRIORITY_NEW", "PRIORITY_NORMAL", "PRIORITY_SWEEP"],
            "options": ["CloudCallOptions"],
            "standin": ["StandIn"],
        },
    )

__all__ = [
    "CloudCalls",
    "CloudCallOptions",
    "CallHealth",
    "OverdueCall",
    "StandIn",
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
