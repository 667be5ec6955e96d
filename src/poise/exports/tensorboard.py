"""Runs as event files that TensorBoard reads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from poise.core.errors import InvalidOption
from poise.exports.scalars import Scalar, export
from poise.ledger.run import Run

EVENTS = "events.out.tfevents.*"


def tensorboard(run: Run, folder: str | Path) -> Path:
    """Write a run into a folder of event files, one scalar for each number per round, and its
    experiment as a text.

    TensorBoard keeps numbers as 32-bit floats. A folder that has event files already is refused:
    TensorBoard would draw both runs as one.
    """
    sink = TensorBoard(folder)
    export(run, sink)
    return sink.folder


class TensorBoard:
    """A sink that writes event files into a folder.

    Args:
        folder: the folder of this run; TensorBoard's ``--logdir`` may be one above it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._writer: Any = None

    def begin(self, run: Run) -> None:
        """Open an event file, and write the experiment into it."""
        if any(self.folder.glob(EVENTS)):
            raise InvalidOption(
                f"{self.folder} has event files already", "choose another folder, or remove them"
            )
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InvalidOption(
                "TensorBoard is not installed", "pip install 'poise[tensorboard]'"
            ) from error
        self._writer = SummaryWriter(str(self.folder))
        indented = "\n".join(
            f"    {line}" for line in run.meta["experiment"].splitlines()
        )  # Markdown for a block of code
        self._writer.add_text("experiment", indented, 0)

    def write(self, numbers: Iterable[Scalar]) -> None:
        """One event for each number."""
        for number in numbers:
            self._writer.add_scalar(number.name, number.value, number.step)
        self._writer.flush()

    def end(self, run: Run) -> None:
        """Close the event file."""
        self._writer.close()
