"""The histories of an unlearned run, in the form of its report page."""

from __future__ import annotations

from poise.analysis.reports.unlearning_page import UnlearningHistory
from poise.privacy.budget import Budget
from poise.unlearning.certificate import read
from poise.unlearning.histories import CERTIFICATE, Histories


def unlearning_histories(
    histories: Histories, budget: Budget
) -> list[UnlearningHistory]:
    """The training and all fulfilled requests, with their sensitivities under a budget."""
    training = UnlearningHistory(
        branch=0,
        start=(0, 0),
        rounds=histories.root.rounds,
        psi=histories.psi(0, budget),
        certificate={},
    )
    fulfilled = [training]
    for branch in histories.finished:
        index = branch.request.index
        folder = histories.branch_folder(index)
        assert folder is not None
        history = UnlearningHistory(
            branch=index,
            start=branch.request.node,
            rounds=histories.run(index).rounds,
            psi=histories.psi(index, budget),
            certificate=read(folder / CERTIFICATE),
        )
        fulfilled.append(history)
    return fulfilled
