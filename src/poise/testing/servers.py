"""The contract of server optimisers."""

from __future__ import annotations

import torch

from poise.core.protocols import Server
from poise.core.traits import ServerTraits, traits_of
from poise.core.vectors import Vector
from poise.testing.clauses import fits, holds, setting_of


def check_server(
    server: Server,
    *,
    rounds: int = 3000,
    tolerance: float = 0.05,
    dimensions: int = 5,
    rests: bool = True,
) -> None:
    """Check the contract of servers.

    Clauses: the server is pure (arguments stay unchanged, an old state stays valid);
    the model keeps its type and shape; a direction of zero from the first state moves
    nothing; following the negative gradient of a parabola reaches its optimum. Declared
    traits are true (``adds``: the model moves by rate times the direction, up to the
    declared noise; ``stateless``: earlier directions leave no trace).

    Args:
        server: the server.
        rounds: number of aggregations to reach the optimum.
        tolerance: largest final distance, as a share of the initial one (adaptive
            servers with a constant rate keep circling the optimum).
        dimensions: of the parabola.
        rests: false for a server that adds noise and so moves without a direction.
    """
    fits(server, setting_of())
    for dtype in (torch.float32, torch.float64):
        theta = torch.linspace(-1.0, 2.0, dimensions, dtype=dtype)
        _pure(server, theta, torch.linspace(0.5, -0.25, dimensions, dtype=dtype))
        if rests:
            _rests(server, theta)
    _reaches_the_optimum(server, rounds, tolerance, dimensions)
    traits = traits_of(server, ServerTraits)
    if traits.adds:
        _adds(server, traits)
    if traits.stateless:
        _forgets(server)


def _pure(server: Server, theta: Vector, direction: Vector) -> None:
    state = server.init(theta)
    for _ in range(3):
        held = {k: v.clone() for k, v in state.items()}
        copies = theta.clone(), direction.clone()
        moved, after = server.apply(theta, direction, state)
        holds(
            moved.shape == theta.shape and moved.dtype == theta.dtype,
            server,
            "the model keeps shape and type",
        )
        holds(bool(torch.isfinite(moved).all()), server, "the model stays finite")
        holds(torch.equal(theta, copies[0]), server, "the model given is not modified")
        holds(
            torch.equal(direction, copies[1]),
            server,
            "the direction given is not modified",
        )
        same = state.keys() == held.keys() and all(
            torch.equal(state[k], held[k]) for k in held
        )
        holds(same, server, "the state given is not modified")
        again, after_again = server.apply(theta, direction, state)
        holds(
            torch.equal(moved, again),
            server,
            "an old state stays valid: the same step twice",
        )
        holds(
            all(torch.equal(after[k], after_again[k]) for k in after),
            server,
            "an old state stays valid",
        )
        holds(
            after.keys() == state.keys(),
            server,
            "the state keeps its names",
            list(after),
        )
        moved.add_(1.0)
        holds(
            torch.equal(theta, copies[0]),
            server,
            "the new model is not a view of the old one",
        )
        theta = again
        state = after_again


def _rests(server: Server, theta: Vector) -> None:
    moved, _ = server.apply(theta, torch.zeros_like(theta), server.init(theta))
    holds(
        torch.equal(moved, theta),
        server,
        "a direction of zero moves nothing in the first round",
    )


def _reaches_the_optimum(
    server: Server, rounds: int, tolerance: float, dimensions: int
) -> None:
    optimum = torch.linspace(-1.0, 1.0, dimensions, dtype=torch.float64)
    theta = torch.zeros(dimensions, dtype=torch.float64)
    start = float(torch.linalg.vector_norm(theta - optimum))
    state = server.init(theta)
    for _ in range(rounds):
        theta, state = server.apply(theta, 0.1 * (optimum - theta), state)
    left = float(torch.linalg.vector_norm(theta - optimum)) / start
    holds(
        left <= tolerance,
        server,
        "reaches the optimum of a parabola",
        f"{left:.3g} of the distance is left",
    )


def _adds(server: Server, traits: ServerTraits) -> None:
    rate = traits.rate
    size = 4000
    holds(rate is not None, server, "declared adds: it says its rate")
    assert rate is not None  # tells type checkers what the clause above checks
    source = torch.Generator().manual_seed(0)
    theta = torch.randn(size, generator=source, dtype=torch.float64)
    state = server.init(theta)
    for _ in range(3):
        direction = torch.randn(size, generator=source, dtype=torch.float64)
        moved, state = server.apply(theta, direction, state)
        off = (moved - theta) / rate - direction
        most = 1e-9 + 7 * traits.noise
        holds(
            float(off.abs().max()) <= most,
            server,
            "declared adds: the model moves by rate times the direction",
        )
        spread = float(off.std())
        within = abs(spread - traits.noise) <= 0.1 * traits.noise + 1e-9
        holds(within, server, "the noise has the declared standard deviation", spread)
        theta = moved


def _forgets(server: Server) -> None:
    theta = torch.linspace(-1.0, 1.0, 5, dtype=torch.float64)
    after = [
        server.apply(theta, sign * torch.ones_like(theta), server.init(theta))[1]
        for sign in (1.0, -3.0)
    ]
    moved = [server.apply(theta, theta.cos(), state)[0] for state in after]
    holds(
        torch.equal(*moved),
        server,
        "declared stateless: earlier directions leave no trace",
    )
