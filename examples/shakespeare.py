# %% [markdown]
# # Shakespeare by speaker
#
# Every role of Shakespeare's plays is a client. The model predicts the next character from the
# eighty characters before it. Roles differ in size: Falstaff has twenty times the text of Gadshill.
#
# Needs `shakespeare/shakespeare_roles.json.gz` in the data folder. If the file is missing, the
# script tells you where to put it.

# %%
import os
from pathlib import Path

import numpy as np

import poise
from poise.analysis.reports import group_runs, write_page
from poise.core.types import Record

TINY = os.environ.get("POISE_EXAMPLES") == "tiny"  # the tests use this small scale
ROLES, ROUNDS, HIDDEN, STRIDE = (6, 2, 8, 200) if TINY else (20, 25, 32, 20)

try:
    # A window of 80 characters begins at every 20th character. The last 5 % of every role's text
    # are held out.
    fed = poise.federation(
        "shakespeare", "by-key", clients=ROLES, seed=0, stride=STRIDE, test_share=0.05
    )
except poise.PoiseError as error:
    raise SystemExit(f"{error.message}\n{error.hint}") from None
for i in np.argsort(fed.sizes)[[0, -1]]:
    print(f"{fed.names[i]}: {fed.sizes[i]} windows, importance {fed.importance[i]:.3f}")

# %% [markdown]
# Sizes differ a lot, so drawing every client with the same probability gives noisy weights. The
# theory ranks the samplers by the noise of the weights, Σ.

# %%
M = max(2, ROLES // 4)
for sampler in (
    poise.samplers.Uniform(M),
    poise.samplers.MD(M),
    poise.samplers.ClusteredBySize(M),
):
    print(
        f"{sampler}: noise of the weights Σ = {sampler.statistics(fed.importance).sigma:.3f}"
    )

# %% [markdown]
# Train an LSTM with the least noisy and with the noisiest sampler.


# %%
def show(record: Record) -> None:
    """Print a line for each round with a measured accuracy."""
    if "accuracy" in record.metrics:
        print(
            f"  round {record.index + 1:3d}: accuracy {record.metrics['accuracy']:.3f}"
        )


task = poise.task("lstm", hidden=HIDDEN)
solver = poise.solvers.SGD(lr=6.0, steps=20, batch_size=16, clip=5.0)
runs = []
for sampler in (poise.samplers.Uniform(M), poise.samplers.ClusteredBySize(M)):
    print(sampler)
    runs.append(
        poise.train(
            fed,
            task,
            solver,
            sampler=sampler,
            rounds=ROUNDS,
            seed=0,
            evaluate_every=5,
            callbacks=[show],
        )
    )

# %% [markdown]
# Baseline: always predict the most common character of the held-out text.

# %%
_, labels = fed.test
print(
    f"the most common character: {np.bincount(np.asarray(labels)).max() / len(labels):.3f}"
)
for run in runs:
    spread = run.weights.sum(axis=1).std()
    print(
        f"accuracy {run.metric('accuracy')[-1]:.3f}; sum of the weights varies by {spread:.2f} "
        "between rounds"
    )

# %%
page = write_page(group_runs(runs), Path("shakespeare.html"), "Shakespeare by speaker")
print(f"curves, weights and clients: {page}")
