"""How a round happens: schedule, execute, decode, attack, validate, weigh, combine, apply, record.

`loop.run` goes from round to round, `round.aggregate` is one application of the equation,
`schedule.schedule` says who starts and who arrives, `local_work.LocalWork` is what clients do.
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
