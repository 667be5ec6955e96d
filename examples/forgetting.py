# %% [markdown]
# # Forgetting a client
#
# Client 3 leaves and asks that the model forgets it. Three answers: train again without it, go on without it, or go
# back to a model that it hardly moved and hide the rest by noise (SIFU). The last one comes with a certificate.
#
# The data ships with scikit-learn.

# %%
import os
import tempfile
from pathlib import Path

import poise
from poise.core.types import Record

TINY = os.environ.get("POISE_EXAMPLES") == "tiny"  # as the tests run it
ROUNDS, LEAST = (8, 2) if TINY else (60, 10)
FOLDER = Path(tempfile.mkdtemp(prefix="forgetting-"))  # of the run; certificates lie in it

fed = poise.federation("digits", "dirichlet", alpha=0.3, clients=20, seed=0)
task = poise.task("logistic")
solver = poise.solvers.SGD(lr=0.05, steps=5, batch_size=16)


# %%
def show(record: Record) -> None:
    """A line every tenth round."""
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
# How far has each client moved the model? Ψ(n, c) bounds it, and noise hides as much as the budget Ψ*.

# %%
psi = poise.unlearning.sensitivity(run)
limit = poise.unlearning.sensitivity_budget(sigma=0.05, epsilon=10, delta=0.01)
print(
    f"budget {limit:.3f}; client 3 moved the model by up to {psi[-1, 3]:.3f}, and crossed the budget in round "
    f"{int((psi[:, 3] <= limit).sum())}"
)

# %% [markdown]
# The three answers. Each has its own folder, because one history keeps to one promise. `target` is the accuracy on
# the remaining clients that is to be won back.

# %%
# The other clients hold nearly all the data, so what is reached for them now is a fair target.
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
    print(f"{method:10} restart {done.restart}, {done.rounds:3d} rounds, reached {done.reached}")

# %% [markdown]
# How well does each model do on client 3's own digits? That is no proof in either direction: others have similar
# digits. The promise is about what could be told from the model, and is written on the certificate, with what it
# rests on.

# %%
models = {"before": run, **{name: done.run for name, done in answers.items()}}
for name, seen in poise.unlearning.examine(run, models, [3], federation=fed, task=task).items():
    print(f"{name:10} accuracy on client 3: {seen.score:.3f}")

# %%
certificate = answers["sifu"].certificate
promised = certificate["guarantee"]
print(f"promised: epsilon {promised['epsilon']}, delta {promised['delta']}")
file = next((FOLDER / "sifu").rglob("certificate.json"))
checks = poise.unlearning.verify(
    file, training=FOLDER / "run"
)  # raises where something does not hold
print(f"{len(checks)} checks hold: {file}")
