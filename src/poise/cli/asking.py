"""The options of a request to forget, for ``poise unlearn`` and ``poise deploy unlearn``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Training = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of the training.")]
Clients = Annotated[str, typer.Option("--clients", "--client", help="Who is to be forgotten: 3,7 or 0..4.")]
Epsilon = Annotated[float | None, typer.Option(help="Of the guarantee; as [unlearning] says, or 10.")]
Delta = Annotated[float | None, typer.Option(help="Of the guarantee; likewise, or 0.01.")]
Sigma = Annotated[float | None, typer.Option(help="Noise on the restart model; likewise, or 0.05.")]
Method = Annotated[str, typer.Option(help="sifu, scratch, fine-tune, last, dp or fed-accum.")]
Target = Annotated[
    float | None,
    typer.Option(help="Accuracy on the remaining clients to reach; 99 % of the present one by default."),
]
MinRounds = Annotated[int, typer.Option(help="Retrain for at least this many rounds.")]
MaxRounds = Annotated[int, typer.Option(help="Give up after this many.")]
Calibration = Annotated[str | None, typer.Option(help="analytic, or classical (for epsilon < 1).")]
Participation = Annotated[str | None, typer.Option(help="conservative, or optimistic (no bound).")]
StrongConvexity = Annotated[float | None, typer.Option(help="Of the clients' losses, where known.")]
Heuristic = Annotated[bool, typer.Option("--heuristic", help="Go on where the bound has no proof.")]
SecretNoise = Annotated[bool, typer.Option("--secret-noise", help="Draw noise that nobody can draw again.")]
HeldOut = Annotated[bool, typer.Option("--held-out", help="Aim at the accuracy on held-out data, not on the clients'.")]
Plan = Annotated[bool, typer.Option("--plan", help="Only say what it would cost.")]
Out = Annotated[Path | None, typer.Option(help="Folder of the branches; RUN/unlearning by default.")]


def options(
    method: str, epsilon: float | None, delta: float | None, sigma: float | None, target: float | None,
    min_rounds: int, max_rounds: int, calibration: str | None, participation: str | None,
    strong_convexity: float | None, heuristic: bool, secret_noise: bool, held_out: bool, out: Path | None,
) -> dict[str, Any]:  # fmt: skip
    """The same as `poise.unlearn` names them; what is None is as the training declared it, or as usual."""
    return {
        "method": method, "epsilon": epsilon, "delta": delta, "sigma": sigma, "target": target,
        "min_rounds": min_rounds, "max_rounds": max_rounds, "calibration": calibration,
        "participation": participation, "strong_convexity": strong_convexity, "heuristic": heuristic,
        "noise": "secret" if secret_noise else "seeded", "held_out": held_out, "out": out,
    }  # fmt: skip
