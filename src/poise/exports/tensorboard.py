"""Export of runs to TensorBoard event files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from poise.core.errors import InvalidOption
from poise.exports.scalars import Scalar, export
from poise.results import Run

EVENTS = "events.out.tfevents.*"


def tensorboard(run: Run, folder: str | Path) -> Path:
    """Write a run into event files: values per round, and the experiment as text.

    TensorBoard stores values as 32-bit floats. The folder must not contain event files:
    TensorBoard would draw both runs as one.
    """
    sink = TensorBoard(folder)
    export(run, sink)
    return sink.folder


class TensorBoard:
    """A sink that writes event files into a folder.

    Args:
        folder: the folder of this run; TensorBoard's ``--logdir`` may be its parent.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._writer: Any = None

    def begin(self, run: Run) -> None:
        """Open an event file and write the experiment."""
        if any(self.folder.glob(EVENTS)):
            raise InvalidOption(
                f"{self.folder} already contains event files",
                "choose another folder, or remove them",
            )
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InvalidOption(
                "TensorBoard is not installed", "pip install 'poise[tensorboard]'"
            ) from error
        self._writer = SummaryWriter(str(self.folder))
        lines = run.meta["experiment"].splitlines()
        # indented: code in Markdown
        code_block = "\n".join(f"    {line}" for line in lines)
        self._writer.add_text("experiment", code_block, 0)

    def write(self, numbers: Iterable[Scalar]) -> None:
        """Write one event per value."""
        for number in numbers:
            self._writer.add_scalar(number.name, number.value, number.step)
        self._writer.flush()

    def end(self, run: Run) -> None:
        """Close the event file."""
        self._writer.close()
