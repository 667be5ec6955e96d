# %% [markdown]
# # Search with Optuna
#
# `poise sweep` tries a grid of values. To search a continuous range, let
# [Optuna](https://optuna.org) propose the values: each trial is one training with poise. A trial
# reports the accuracy after every round, and Optuna stops trials that fall behind the median of
# the others. Optuna needs the extra: `pip install "poise[optuna]"`.
#
# The data ships with scikit-learn.

# %%
import os

try:
    import optuna
except ImportError as absent:
    raise SystemExit(
        'this example needs Optuna: pip install "poise[optuna]"'
    ) from absent

import poise
from poise.core.types import Record

TINY = os.environ.get("POISE_EXAMPLES") == "tiny"  # the tests use this small scale
TRIALS = 4 if TINY else 20
ROUNDS = 4 if TINY else 20

# %% [markdown]
# One run, and what happens in it: the accuracy of every round goes to the trial, and the trial can
# end the run.


# %%
def accuracy(lr: float, m: int, seed: int, trial: optuna.Trial | None = None) -> float:
    """Train with a learning rate and a number of clients; return the last accuracy."""
    behind = []

    def report(record: Record) -> None:
        if trial is not None:
            trial.report(float(record.metrics["accuracy"]), record.index)
            if trial.should_prune():
                behind.append(record.index)

    run = poise.train(
        poise.federation("digits", "dirichlet", alpha=0.1, clients=20, seed=seed),
        poise.task("logistic"),
        poise.solvers.SGD(lr=lr, steps=10, batch_size=16),
        poise.samplers.MD(m=m),
        rounds=ROUNDS,
        seed=seed,
        callbacks=[report],
        stop=lambda: bool(behind),
    )
    if behind:
        raise optuna.TrialPruned
    return float(run.metric("accuracy")[-1])


# %% [markdown]
# One trial: the mean accuracy over two seeds, which are the same in all trials. Only the first
# seed reports to Optuna; a stopped trial does not train the second one.


# %%
def objective(trial: optuna.Trial) -> float:
    """Return the mean accuracy of the values that Optuna proposes."""
    lr = trial.suggest_float("lr", 0.001, 1.0, log=True)
    m = trial.suggest_int("m", 2, 10)
    first = accuracy(lr, m, seed=0, trial=trial)
    return (first + accuracy(lr, m, seed=1)) / 2


# %% [markdown]
# The search. The sampler has a seed, so the search repeats exactly.

# %%
optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(
    direction="maximize",
    sampler=optuna.samplers.TPESampler(seed=0),
    pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=2),
)
study.optimize(objective, n_trials=TRIALS)

for trial in study.trials:
    values = ", ".join(f"{name} = {value:.3g}" for name, value in trial.params.items())
    result = trial.state.name.lower()
    if trial.value is not None:
        result = f"accuracy {trial.value:.3f}"
    print(f"trial {trial.number:2}: {values}: {result}")
print(f"best: {study.best_params}, accuracy {study.best_value:.3f}")

# %% [markdown]
# The best of many trials is partly lucky: it was chosen by these two seeds. New seeds give its
# real accuracy.

# %%
best = study.best_params
finals = [accuracy(best["lr"], best["m"], seed=seed) for seed in (2, 3, 4)]
print(f"with new seeds: {', '.join(f'{final:.3f}' for final in finals)}")
