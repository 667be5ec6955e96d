# %% [markdown]
# # Four hospitals
#
# Four hospitals (Cleveland, Hungary, Switzerland and the VA of Long Beach) recorded whether their
# patients have heart disease. They hold 303, 261, 46 and 130 usable records, and their patients
# differ. This example trains one model for all four in one process. It measures how different the
# hospitals are, shows which objective each weighting minimises, simulates a slow hospital, and
# unlearns a hospital that leaves. The folder `examples/hospitals` does the same on real nodes, with
# keys and certificates.
#
# Needs the data set heart-disease (`poise data fetch heart-disease`).

# %%
import os
import tempfile
from pathlib import Path

import numpy as np

import poise
from poise.analysis.reports import group_runs, write_page
from poise.core.types import Record

TINY = os.environ.get("POISE_EXAMPLES") == "tiny"  # the tests use this small scale
ROUNDS = 6 if TINY else 60
FOLDER = Path(tempfile.mkdtemp(prefix="hospitals-"))  # for the runs

try:
    fed = poise.federation("heart-disease", "by-key")
except poise.PoiseError as error:
    raise SystemExit(f"{error.message}\n{error.hint}") from None
for client, name in enumerate(fed.names):
    _, ill = fed.client(client)
    print(
        f"{name:12} {fed.sizes[client]:4d} patients to learn from, {np.mean(ill):.0%} of them ill"
    )

# %% [markdown]
# How similar are the hospitals? Each sends the direction in which its data vary most. Misalignment
# is 0 for equal directions, 1/2 for orthogonal directions, and 1 for opposite directions.

# %%
graph = poise.graph.similarity(fed)
print("misalignment of the hospitals")
for name, row in zip(fed.names, graph.misalignment, strict=True):
    print(f"{name:12}", *(f"{value:6.2f}" for value in row))
print(f"homogeneity of the network: {graph.homogeneity:.2f}")


# %% [markdown]
# Three methods: weight hospitals by their number of patients (FedAvg); give hospitals with large
# losses more weight (FedSoftMax); or do not wait for a slow hospital, and weight its rare answers
# so that it counts as before (FedFix).


# %%
def show(record: Record) -> None:
    """Print a line every twentieth round."""
    if (record.index + 1) % 20 == 0:
        print(
            f"  round {record.index + 1:3d}: accuracy {record.metrics['accuracy']:.3f}"
        )


task = poise.task("logistic")
# All hospitals make the same number of steps: more steps would count for more.
solver = poise.solvers.SGD(lr=0.05, steps=10, batch_size=16)
slow = poise.clocks.FixedWindow(
    0.3, (0.25, 0.25, 0.25, 1.0)
)  # the VA needs four times as long
choices = {
    "fedavg": {},
    "fedsoftmax": {"weighting": poise.weightings.SoftMax(temperature=1.0)},
    "fedfix": {"clock": slow, "weighting": poise.weightings.TimeBased()},
}
runs = {}
for name, parts in choices.items():
    explanation = poise.explain(fed, task, solver, **parts, rounds=ROUNDS)
    print(f"{name}: {'unbiased' if explanation.unbiased else 'biased'}")
    runs[name] = poise.train(
        fed,
        task,
        solver,
        **parts,
        rounds=ROUNDS,
        seed=0,
        metrics=["client_loss"],
        keep="all",
        out=FOLDER / name,
        callbacks=[show],
    )

# %%
print(f"{'':12} {'accuracy':>9}", *(f"{name:>12}" for name in fed.names))
for name, run in runs.items():
    losses = " ".join(f"{loss:12.3f}" for loss in run.metric("client_loss")[-1])
    print(f"{name:12} {run.metric('accuracy')[-1]:9.3f} {losses}")

# %% [markdown]
# Switzerland leaves and asks to be unlearned. poise returns to a model that Switzerland hardly
# moved, adds noise, and trains on without it.

# %%
unlearned = poise.unlearn(
    runs["fedavg"],
    [2],
    method="sifu",
    federation=fed,
    task=task,
    min_rounds=2,
    max_rounds=ROUNDS,
    target=0.9 * float(runs["fedavg"].metric("accuracy")[-1]),
    out=FOLDER / "forgotten",
)
sigma = unlearned.certificate["noise"]["sigma"]
print(
    f"restart from round {unlearned.restart[1]}, {unlearned.rounds} rounds without it, "
    f"noise {sigma:g}"
)
print(
    f"accuracy on the other hospitals' data: {unlearned.run.metric('train_accuracy')[-1]:.3f}"
)

# %%
page = write_page(
    group_runs(runs.values()), Path("four_hospitals.html"), "Four hospitals"
)
print(f"curves, weights and schedule: {page}")
