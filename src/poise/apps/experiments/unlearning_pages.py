"""The histories of a run that was asked to forget, as its page tells them."""

from __future__ import annotations

from poise.analysis.reports.unlearning_page import Story
from poise.privacy.budget import Budget
from poise.unlearning.certificate import read
from poise.unlearning.histories import CERTIFICATE, Histories


def stories_of(histories: Histories, budget: Budget) -> list[Story]:
    """The training and every request that was honoured, with sensitivities as a budget counts
    them.
    """
    told = [Story(0, (0, 0), histories.root.rounds, histories.psi(0, budget), {})]
    for branch in histories.finished:
        s = branch.request.index
        place = histories.branch_folder(s)
        assert place is not None
        certificate = read(place / CERTIFICATE)
        told.append(
            Story(
                s,
                branch.request.node,
                histories.run(s).rounds,
                histories.psi(s, budget),
                certificate,
            )
        )
    return told
