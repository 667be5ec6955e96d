# %% [markdown]
# # Unlearning a client
#
# Client 3 leaves and asks you to unlearn it. You can answer in three ways: retrain without the
# client, continue without it, or return to a model that it hardly moved and hide the rest by noise
# (SIFU). SIFU comes with a certificate.
#
# The data ships with scikit-learn.

# %%
import os
import tempfile
from pathlib import Path

import poise
from poise.core.types import Record

TINY = os.environ.get("POISE_EXAMPLES") == "tiny"  # the tests use this small scale
ROUNDS, LEAST = (8, 2) if TINY else (60, 10)
FOLDER = Path(
    tempfile.mkdtemp(prefix="forgetting-")
)  # for the run and its certificates

fed = poise.federation("digits", "dirichlet", alpha=0.3, clients=20, seed=0)
task = poise.task("logistic")
solver = poise.solvers.SGD(lr=0.05, steps=5, batch_size=16)


# %%
def show(record: Record) -> None:
    """Print a line every tenth round."""
    if (record.index + 1) % 10 == 0:
        print(f"round {record.index + 1:3d}: accuracy {record.metrics['accuracy']:.3f}")


run = poise.train(
    fed,
    task,
    solver,
    sampler=poise.samplers.Uniform(5),
    rounds=ROUNDS,
    seed=0,
    keep="all",
    out=FOLDER / "run",
    callbacks=[show],
)

# %% [markdown]
# How far can each client have moved the model? Ψ(n, c) is the bound. Noise hides distances up to
# the budget Ψ*.

# %%
psi = poise.unlearning.sensitivity(run)
limit = poise.unlearning.sensitivity_budget(sigma=0.05, epsilon=10, delta=0.01)
print(
    f"budget {limit:.3f}; client 3 moved the model by up to {psi[-1, 3]:.3f}, "
    f"and crossed the budget in round {int((psi[:, 3] <= limit).sum())}"
)

# %% [markdown]
# The three methods. Each has its own folder, because one history supports one kind of guarantee.
# Retraining stops when the accuracy on the remaining clients reaches `target`.

# %%
# The other clients hold nearly all the data, so the present accuracy gives a fair target.
target = 0.97 * float(run.metric("accuracy")[-1])
answers = {}
for method in ("scratch", "fine-tune", "sifu"):
    answers[method] = poise.unlearn(
        run,
        [3],
        method=method,
        federation=fed,
        task=task,
        target=target,
        min_rounds=LEAST,
        max_rounds=3 * ROUNDS,
        out=FOLDER / method,
    )
    done = answers[method]
    print(
        f"{method:10} restart {done.restart}, {done.rounds:3d} rounds, reached {done.reached}"
    )

# %% [markdown]
# How accurate is each model on client 3's own digits? The answer proves nothing, because other
# clients have similar digits. The guarantee is about distinguishing models. The certificate states
# it with its assumptions.

# %%
models = {"before": run, **{name: done.run for name, done in answers.items()}}
for name, result in poise.unlearning.examine(
    run, models, [3], federation=fed, task=task
).items():
    print(f"{name:10} accuracy on client 3: {result.score:.3f}")

# %%
certificate = answers["sifu"].certificate
guarantee = certificate["guarantee"]
print(f"guarantee: epsilon {guarantee['epsilon']}, delta {guarantee['delta']}")
file = next((FOLDER / "sifu").rglob("certificate.json"))
checks = poise.unlearning.verify(
    file, training=FOLDER / "run"
)  # raises if a check fails
print(f"{len(checks)} checks hold: {file}")
