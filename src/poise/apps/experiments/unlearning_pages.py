"""The unlearning histories of a run, for its page."""

from __future__ import annotations

from poise.analysis.reports.unlearning_page import UnlearningHistory
from poise.privacy.budget import Budget
from poise.unlearning.certificate import read
from poise.unlearning.histories import CERTIFICATE, Histories


def unlearning_histories(histories: Histories, budget: Budget) -> list[UnlearningHistory]:
    """The training and every finished request, with the sensitivities that a budget counts."""
    training = UnlearningHistory(
        branch=0,
        start=(0, 0),
        rounds=histories.root.rounds,
        psi=histories.psi(0, budget),
        certificate={},
    )
    found = [training]
    for branch in histories.finished:
        s = branch.request.index
        place = histories.branch_folder(s)
        assert place is not None
        history = UnlearningHistory(
            branch=s,
            start=branch.request.node,
            rounds=histories.run(s).rounds,
            psi=histories.psi(s, budget),
            certificate=read(place / CERTIFICATE),
        )
        found.append(history)
    return found
