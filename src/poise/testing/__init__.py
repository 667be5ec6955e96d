"""Contract suites for authors of parts: clauses that all parts of a slot satisfy.

Each ``check_…`` takes an instance and runs the clauses of its slot. A broken clause
raises `AssertionError` with the part, the clause and the reason. Monte-Carlo clauses
have a fixed seed and a stated confidence level.

>>> from poise.samplers import Uniform
>>> check_sampler(Uniform(3))
"""

from poise.testing.aggregators import check_aggregator
from poise.testing.attacks import check_attack
from poise.testing.backends import check_backend
from poise.testing.channels import check_channel
from poise.testing.clocks import check_clock, check_durations
from poise.testing.federations import SampleFederation
from poise.testing.parts import check_part
from poise.testing.personal import check_personal
from poise.testing.samplers import check_sampler
from poise.testing.servers import check_server
from poise.testing.solvers import check_solver
from poise.testing.weightings import check_weighting

__all__ = [
    "SampleFederation",
    "check_aggregator",
    "check_attack",
    "check_backend",
    "check_channel",
    "check_clock",
    "check_durations",
    "check_part",
    "check_personal",
    "check_sampler",
    "check_server",
    "check_solver",
    "check_weighting",
]
