"""Solvers: the local work of each client."""

from poise.solvers.feddyn import FedDyn
from poise.solvers.fedfor import FedFor
from poise.solvers.perturbed import Perturbed
from poise.solvers.prox import Prox
from poise.solvers.scaffold import Scaffold
from poise.solvers.sgd import SGD
from poise.solvers.sums import Sums

__all__ = ["SGD", "FedDyn", "FedFor", "Perturbed", "Prox", "Scaffold", "Sums"]
