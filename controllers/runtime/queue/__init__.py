"""Keys on their way to a reconcile, and what becomes of them after it (stages 3 and 4).

Comes in: keys from triggers, each with a priority. Goes out: calls of reconcile functions on worker
threads, one at a time for each key; their `Result` or exception is turned into "done", "again after
so long" or "set aside" in one place, `outcomes.py`.

Read first: `workqueue.py`, `worker.py`, `outcomes.py`. Imports the wing `api` only,
for what a failure means.
"""

from controllers.runtime.fairqueue import FairQueue
from controllers.runtime.queue.failurelog import FailureLog, pending, seconds_text
from controllers.runtime.queue.keys import Unfinished
from controllers.runtime.queue.metrics import WorkQueueCollector
from controllers.runtime.queue.outcomes import (
    DONE,
    AskAgain,
    FailureHandling,
    Parked,
    Result,
    TerminalError,
    retry_after_of,
)
from controllers.runtime.queue.worker import Batching, BatchWorker, Worker
from controllers.runtime.queue.workqueue import ShutDown, WorkQueue

__all__ = [
    "AskAgain",
    "BatchWorker",
    "Batching",
    "DONE",
    "FairQueue",
    "FailureHandling",
    "FailureLog",
    "Parked",
    "Result",
    "ShutDown",
    "TerminalError",
    "Unfinished",
    "WorkQueue",
    "WorkQueueCollector",
    "Worker",
    "pending",
    "retry_after_of",
    "seconds_text",
]
