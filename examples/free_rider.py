# %% [markdown]
# # Catching a free-rider
#
# Three of twenty clients take part to get the model and do no work. Client 3 returns the model
# unchanged, client 8 returns it with noise, and client 11 sends back the earlier work of the
# others. The audit reads the numbers that the server recorded about every update. It needs no data.
#
# The data ships with scikit-learn.

# %%
import os
import warnings
from pathlib import Path

import poise
from poise.analysis.reports.audit_page import write_audit
from poise.core.types import Record

TINY = os.environ.get("POISE_EXAMPLES") == "tiny"  # the tests use this small scale
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
    """Print a line every tenth round."""
    if (record.index + 1) % 10 == 0:
        print(f"round {record.index + 1:3d}: accuracy {record.metrics['accuracy']:.3f}")


run = poise.train(
    fed, task, solver, rounds=ROUNDS, seed=0, attacks=riders, callbacks=[show]
)

# %% [markdown]
# The suspects, with p-value and reason.

# %%
found = poise.audit(run)
for client in found.suspects:
    print(found.explain(client))
print(f"found {found.suspects}, ranked with AUC {found.auc([3, 8, 11]):.3f}")

# %% [markdown]
# With `audit="quarantine"`, poise does the same during training. Suspects get weight 0 from the
# next round on, and poise clears them if the evidence disappears. The run records each decision as
# an event.

# %%
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # poise also issues a warning for every decision
    watched = poise.train(
        fed, task, solver, rounds=ROUNDS, seed=0, attacks=riders, audit="quarantine"
    )
for event in watched.events:
    print(event.split(":")[0] + ":" + event.split(":")[1])

honest = poise.train(fed, task, solver, rounds=ROUNDS, seed=0)
print(f"{'':12} {'accuracy':>9} {'weight of the three in the last round':>40}")
for name, each in (("no audit", run), ("quarantine", watched), ("all honest", honest)):
    weight = each.weights[-1, [3, 8, 11]].sum()
    print(f"{name:12} {each.metric('accuracy')[-1]:9.3f} {weight:40.3f}")

# %%
page = write_audit([("three free-riders", run, found)], Path("free_rider.html"))
print(f"the audit as a page: {page}")
