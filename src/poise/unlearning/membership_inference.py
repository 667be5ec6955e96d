"""Membership inference: how well the loss of a sample tells that a client trained with it.

The attacker sees a model's loss on a sample and guesses "trained with it" below a
threshold. The area under the curve (AUC) of all thresholds is the chance that a sample of
an unlearned client has a lower loss than a held-out sample: 1/2 for a model that never
saw the clients, if their samples are like the held-out ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from poise.core.errors import IncompatibleParts, require
from poise.core.federations import FederationLike, TaskLike
from poise.core.samples import Shards
from poise.core.types import Floats
from poise.results import Run
from poise.tasks.oracle import SampleOracle
from poise.unlearning.request import checked_clients
from poise.unlearning.retraining import composition_of, federation_without


def auc(members: Floats, others: Floats, weights: Floats | None = None) -> float:
    """Return the chance that a member's score exceeds the score of another; ties count half.

    Args:
        members: scores of the members, (n,).
        others: scores of the others, (k,).
        weights: of the others, (k,); equal by default.

    >>> auc(np.array([3.0, 1.0]), np.array([2.0, 0.0]))
    0.75
    >>> auc(np.array([1.0]), np.array([1.0, 0.0, 2.0]))
    0.5
    """
    if weights is None:
        weights = np.ones(len(others))
    require(len(members) > 0, "auc: there are no members")
    require(float(weights.sum()) > 0, "auc: there are no others")
    order = np.argsort(others)
    ranked = others[order]
    below = np.concatenate([[0.0], np.cumsum(weights[order])])
    less = below[np.searchsorted(ranked, members, side="left")]
    at_most = below[np.searchsorted(ranked, members, side="right")]
    return float(np.mean(less + at_most) / 2 / below[-1])


def membership_auc(
    training: Run,
    models: Mapping[str, Run | Floats],
    clients: Sequence[int],
    federation: FederationLike | None = None,
    task: TaskLike | None = None,
) -> dict[str, float]:
    """Return the AUC of the loss threshold on the samples of unlearned clients, by model.

    The held-out samples get weights, so that their classes have the shares of the
    clients' samples: a class that is easy for the model says nothing about membership.
    The data of the unlearned clients are read.

    Args:
        training: the training run, whose federation has the clients' data.
        models: by name, runs (their newest model) or models (d,).
        clients: the unlearned clients.
        federation: required if the run was made with data given as Python objects.
        task: required if the run was made with a task given as a Python object.

    Source: [Yeom 2018, §3.2].
    """
    whole = composition_of(training, federation, task)
    unlearned = checked_clients(clients, whole.federation.clients, ())
    others = np.setdiff1d(np.arange(whole.federation.clients), unlearned)
    oracle = whole.task.bind(
        federation_without(whole.federation, others), whole.backend.device
    )
    if not isinstance(oracle, SampleOracle):
        raise IncompatibleParts(
            "membership_auc: the clients of this run have no samples",
            "use a federation with samples",
        )
    held_out = oracle.federation.test_shard
    require(
        held_out is not None,
        "membership_auc: the federation has no held-out samples",
        "choose test_share or test_samples above 0",
    )
    assert held_out is not None
    members = oracle.federation.shards(np.arange(oracle.federation.clients))
    weights = class_weights(members, held_out)
    results = {}
    for name, model in models.items():
        values = model.model if isinstance(model, Run) else model
        theta = torch.from_numpy(np.array(values)).to(oracle.device)
        losses = [oracle.sample_losses(theta, s) for s in (members, held_out)]
        results[name] = auc(-losses[0], -losses[1], weights)
    return results


def class_weights(members: Shards, held_out: Shards) -> Floats:
    """Return a weight for each held-out sample: the classes then have the members' shares."""
    if members.labels.is_floating_point() or members.labels.dim() > 1:
        return np.ones(len(held_out.labels))
    own = members.labels.numpy()
    labels = held_out.labels.numpy()
    classes = int(max(own.max(), labels.max())) + 1
    wanted = np.bincount(own, minlength=classes)
    available = np.bincount(labels, minlength=classes)
    missing = np.flatnonzero((wanted > 0) & (available == 0))
    require(
        not len(missing),
        f"membership_auc: no held-out sample has class {missing.tolist()}",
        "choose a larger test_samples",
    )
    shares = wanted / np.maximum(available, 1)
    return np.asarray(shares[labels], dtype=np.float64)
