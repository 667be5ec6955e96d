"""Rounds: schedule, execute, decode, attack, validate, weigh, combine, apply.

`loop.run` goes from round to round. `round.aggregate` applies the equation once.
`schedule.schedule` decides which clients start and which arrive. `local_work.LocalWork`
is the work of a client.
"""

from poise.engine.loop import Environment, Observers, initial, run
from poise.engine.plan import Parts, Plan
from poise.engine.round import aggregate
from poise.engine.schedule import schedule
from poise.engine.state import Journal, State
from poise.engine.wire import Wire

__all__ = [
    "Environment",
    "Journal",
    "Observers",
    "Parts",
    "Plan",
    "State",
    "Wire",
    "aggregate",
    "initial",
    "run",
    "schedule",
]
