"""The gateway to the cloud (stage 5, cloud call): the only caller of vendor code.

A controller holds `calls` (:class:`CloudCalls`, and what it has of `capabilities`, one typed method
each). Every call goes to the `pool`, waits there for its turn, and runs in a thread (`call`), where
its answer is judged or its exception translated (`answers`). Questions about many nodes go by
`nodes`. Beside it: `metrics` (and health), `options`.
"""

from typing import TYPE_CHECKING

from cloudprovider.internal.lazy import lazy

if TYPE_CHECKING:
    from controllers.cloudcalls.answers import (
        CLOUD_ERRORS,
        Answer,
        AnswerMissing,
        CallAborted,
        CallFailed,
        CallOverdue,
        CallsClosed,
        CloudCallError,
        Contradiction,
        InvalidAnswer,
    )
    from controllers.cloudcalls.call import (
        PRIORITY_DELETE,
        PRIORITY_NEW,
        PRIORITY_NORMAL,
        PRIORITY_SWEEP,
    )
    from controllers.cloudcalls.calls import CloudCalls
    from controllers.cloudcalls.metrics import CallHealth, OverdueCall
    from controllers.cloudcalls.options import CloudCallOptions
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "controllers.cloudcalls.call": "PRIORITY_DELETE PRIORITY_NEW PRIORITY_NORMAL PRIORITY_SWEEP",
            "controllers.cloudcalls.calls": "CloudCalls",
            "controllers.cloudcalls.answers": (
                "CLOUD_ERRORS Answer AnswerMissing CallAborted CallFailed CallOverdue CallsClosed CloudCallError "
                "Contradiction InvalidAnswer"
            ),
            "controllers.cloudcalls.metrics": "CallHealth OverdueCall",
            "controllers.cloudcalls.options": "CloudCallOptions",
        },
    )

__all__ = [
    "Answer",
    "CloudCalls",
    "CloudCallOptions",
    "CallHealth",
    "OverdueCall",
    # priorities
    "PRIORITY_DELETE",
    "PRIORITY_NEW",
    "PRIORITY_NORMAL",
    "PRIORITY_SWEEP",
    # errors
    "CLOUD_ERRORS",
    "CloudCallError",
    "Contradiction",
    "CallFailed",
    "CallAborted",
    "InvalidAnswer",
    "AnswerMissing",
    "CallsClosed",
    "CallOverdue",
]
