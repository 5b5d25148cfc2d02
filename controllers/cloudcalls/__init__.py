"""The gateway to the cloud (stage 5, cloud call): the only caller of vendor code.

The way of one call: controller, `capabilities`, `gateway`, `pool`, and in a thread of the pool
`Gateway._execute`, which calls the provider. A question about nodes goes from the controller to the
`facade` (:class:`CloudCalls`), `nodes/fetch` (many at once) and `nodes/instances` (which calls a
question takes), and then the same way. Beside it: `call` (one call, and how far it is), `turns` and
`limits` (who is next, and how fast), `answer` (what passes in), `errors`
(what a call can end in), `outage`, `health`, `metrics`, `options`.
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
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "controllers.cloudcalls.answer": "Answer",
            "controllers.cloudcalls.errors": (
                "AnswerMissing CallAborted CallFailed CallOverdue CallsClosed CloudCallError InvalidAnswer"
            ),
            "controllers.cloudcalls.facade": "CloudCalls",
            "controllers.cloudcalls.gateway": "DryRunBackend",
            "controllers.cloudcalls.health": "CallHealth OverdueCall",
            "controllers.cloudcalls.limits": ("PRIORITY_DELETE PRIORITY_NEW PRIORITY_NORMAL PRIORITY_SWEEP"),
            "controllers.cloudcalls.options": "CloudCallOptions",
        },
    )

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
