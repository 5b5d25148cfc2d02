"""When the manager's controllers run: leader election as the flags want it, and leader migration.

Comes in: the checked options, and what `controllers/runtime/election` observes of the Lease. Goes out: start and
stop of the groups of controllers (`leadership.py` for the main Lease, `moving.py` for the second one). Which of them
run under which Lease says `migration.py`.
"""
