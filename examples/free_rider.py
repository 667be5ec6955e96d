# %% [markdown]
# # Catching a free-rider
#
# Twenty clients, of whom three take part to get the model and do no work: one returns the model as
# it came, one hides
# that behind noise, one sends back what the others did. The audit reads what the server saw of
# every update; it needs
# no data.
#
# The data ships with scikit-learn.

# %%
import os
import warnings
from pathlib import Path

import poise
from poise.analysis.reports.audit_page import write_audit
from poise.core.types import Record

TINY = os.environ.get("POISE_EXAMPLES") == "tiny"  # as the tests run it
ROUNDS = 6 if TINY else 30

fed = poise.federation("digits", "dirichlet", alpha=0.3, clients=20, seed=0)
task = poise.task("mlp", hidden=30)
solver = poise.solvers.SGD(lr=0.1, steps=5, batch_size=16)
riders = [
    poise.attacks.FreeRider([3]),
    poise.attacks.FreeRider([8], kind="disguised", gamma=1.0),
    poise.attacks.StaleReplay([11]),
]


# %%
def show(record: Record) -> None:
    """A line every tenth round."""
    if (record.index + 1) % 10 == 0:
        print(f"round {record.index + 1:3d}: accuracy {record.metrics['accuracy']:.3f}")


run = poise.train(fed, task, solver, rounds=ROUNDS, seed=0, attacks=riders, callbacks=[show])

# %% [markdown]
# Who looks like a free-rider, with which p-value, and why.

# %%
found = poise.audit(run)
for client in found.suspects:
    print(found.explain(client))
print(f"found {found.suspects}, ranked with AUC {found.auc([3, 8, 11]):.3f}")

# %% [markdown]
# The same while the run goes on: suspects get weight 0 from the next round on, and are cleared if
# nothing is left
# against them. Each decision is an event of the run.

# %%
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # every decision is a warning too
    watched = poise.train(
        fed, task, solver, rounds=ROUNDS, seed=0, attacks=riders, audit="quarantine"
    )
for event in watched.events:
    print(event.split(":")[0] + ":" + event.split(":")[1])

honest = poise.train(fed, task, solver, rounds=ROUNDS, seed=0)
print(f"{'':12} {'accuracy':>9} {'weight of the three in the last round':>40}")
for name, one in (("unwatched", run), ("watched", watched), ("nobody rides", honest)):
    print(f"{name:12} {one.metric('accuracy')[-1]:9.3f} {one.weights[-1, [3, 8, 11]].sum():40.3f}")

# %%
page = write_audit([("three free-riders", run, found)], Path("free_rider.html"))
print(f"the audit as a page: {page}")
