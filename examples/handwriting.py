# %% [markdown]
# # Handwriting by writer
#
# 539 people wrote the digits of MNIST. A hundred of them are the clients of this example, each with
# their own digits. The common test set holds digits of other writers. The example measures the
# accuracy for the average writer and for the worst writers. More weight for clients with large
# losses (`SoftMax`) should help the worst writers, at the cost of bias.
#
# Needs MNIST with its writers (`poise data fetch mnist`).

# %%
import os
from pathlib import Path

import numpy as np

import poise
from poise.analysis.reports import group_runs, write_page
from poise.core.types import Record

TINY = os.environ.get("POISE_EXAMPLES") == "tiny"  # the tests use this small scale
WRITERS, ROUNDS = (12, 3) if TINY else (100, 40)

try:
    fed = poise.federation(
        "mnist", "by-key", by="writer", clients=WRITERS, seed=0, test_samples=2000
    )
except poise.PoiseError as error:
    raise SystemExit(f"{error.message}\n{error.hint}") from None
print(f"{fed.clients} writers with {fed.sizes.min()} to {fed.sizes.max()} digits each")

# %% [markdown]
# Before training: which objective does each weighting minimise?

# %%
task = poise.task("mlp", hidden=50)
solver = poise.solvers.SGD(lr=0.1, steps=8, batch_size=10)
sampler = poise.samplers.Uniform(max(2, WRITERS // 10))
weightings = {
    "by size": poise.weightings.Proportional(),
    "by loss": poise.weightings.SoftMax(temperature=0.3),
}
for name, weighting in weightings.items():
    parts = {"sampler": sampler, "weighting": weighting}
    explanation = poise.explain(fed, task, solver, **parts, rounds=ROUNDS)
    print(f"{name}: {'; '.join(explanation.warnings) or 'no warnings'}")


# %%
def show(record: Record) -> None:
    """Print a line every tenth round."""
    if (record.index + 1) % 10 == 0:
        print(
            f"  round {record.index + 1:3d}: accuracy on unseen writers "
            f"{record.metrics['accuracy']:.3f}"
        )


runs = {}
for name, weighting in weightings.items():
    print(name)
    runs[name] = poise.train(
        fed,
        task,
        solver,
        sampler=sampler,
        weighting=weighting,
        rounds=ROUNDS,
        seed=0,
        callbacks=[show],
        metrics=["own_accuracy", "client_test_accuracy"],
    )

# %% [markdown]
# Each writer holds out a fifth of the digits for testing. The second weighting should help the
# worst tenth of the writers.

# %%
print(f"{'':10} {'unseen':>8} {'own':>8} {'worst tenth':>12}")
for name, run in runs.items():
    own = np.sort(run.metric("client_test_accuracy")[-1])
    worst = own[: max(1, len(own) // 10)].mean()
    print(
        f"{name:10} {run.metric('accuracy')[-1]:8.3f} {run.metric('own_accuracy')[-1]:8.3f} "
        f"{worst:12.3f}"
    )
print("This is one seed: repeat with others before you believe a small difference.")

# %%
page = write_page(
    group_runs(runs.values()), Path("handwriting.html"), "Handwriting by writer"
)
print(f"curves, weights and clients: {page}")
