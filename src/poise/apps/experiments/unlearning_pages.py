"""The histories of an unlearned run, in the form of its report page."""

from __future__ import annotations

from poise.analysis.reports.unlearning_page import UnlearningHistory
from poise.privacy.budget import Budget
from poise.unlearning.certificate import read
from poise.unlearning.histories import CERTIFICATE, Histories


def stories_of(histories: Histories, budget: Budget) -> list[UnlearningHistory]:
    """The training and all fulfilled requests, with their sensitivities under a budget."""
    stories = [UnlearningHistory(0, (0, 0), histories.root.rounds, histories.psi(0, budget), {})]
    for branch in histories.finished:
        index = branch.request.index
        folder = histories.branch_folder(index)
        assert folder is not None
        story = UnlearningHistory(
            index,
            branch.request.node,
            histories.run(index).rounds,
            histories.psi(index, budget),
            read(folder / CERTIFICATE),
        )
        stories.append(story)
    return stories
