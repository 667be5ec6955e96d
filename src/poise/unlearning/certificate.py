"""The certificate: what was promised, what it rests on, and hashes of everything that shows it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from poise._version import __version__
from poise.core.errors import LedgerError
from poise.ledger.files import write_whole
from poise.ledger.run import Run
from poise.ledger.store import DATABASE
from poise.privacy.gaussian import epsilon_at
from poise.unlearning import privacy_accounting
from poise.unlearning.histories import CERTIFICATE, Histories, members_of
from poise.unlearning.methods import CERTIFIED, along
from poise.unlearning.proof import Grounds
from poise.unlearning.request import Request
from poise.unlearning.retraining import HELD_OUT

FORMAT = 1


def certify(
    histories: Histories,
    request: Request,
    grounds: Grounds,
    score: str,
    reached: bool,
    forgotten: float | None,
) -> dict[str, Any]:
    """The certificate of the newest branch; ``forgotten`` is the score on the clients it forgot,
    where measured.
    """
    made = histories.run(request.index)
    document: dict[str, Any] = {
        "certificate": FORMAT,
        "poise": __version__,
        "clients": list(request.clients),
        "forgotten so far": histories.forgotten,
        "request": {
            "index": request.index,
            "method": request.method,
            "heuristic": request.heuristic,
            "target": request.target,
            "min rounds": request.min_rounds,
            "max rounds": request.max_rounds,
        },
        "guarantee": _guarantee(histories, request),
        "restart": {"branch": request.node[0], "round": request.node[1]},
        "history": [list(node) for node in histories.oracle],
        "grounds": {
            "theorem": grounds.theorem,
            "assumed": [*grounds.assumed, *_several(histories)],
            "not proved": list(grounds.gaps),
            "statistics outside the optimiser": grounds.buffers,
        },
        "noise": {"sigma": request.sigma, "drawn": request.noise, "commitment": request.commitment},
        "result": {
            "rounds": made.rounds,
            "bytes up": int(made.bytes_up.sum()),
            "bytes down": int(made.bytes_down.sum()),
            "score": score,
            **_scored(made, score),
            "target reached": reached,
            "on forgotten clients": forgotten,
        },
        "evidence": {
            "training": evidence(histories.run(0)),
            "branches": [evidence(histories.run(s)) for s in range(1, request.index + 1)],
            "restart model": model_hash(histories.run(request.node[0]), request.node[1]),
            "start": model_hash(made, 0),
            "model": model_hash(made, made.rounds),
        },
    }
    return {**document, "digest": digest_of(document)}


def _several(histories: Histories) -> list[str]:
    """What is said where more than one noise covers the forgotten."""
    if len(histories.oracle) < 2:
        return []
    return [
        (
            "the promise is for each noise of this history by itself (E Theorem 5.3), composed "
            "epsilon for all of them"
        )
    ]


def _guarantee(histories: Histories, request: Request) -> dict[str, Any]:
    """What is promised for everyone forgotten so far; None where the method promises nothing."""
    budget = request.budget
    said = {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "calibration": budget.calibration,
        "participation": budget.participation,
        "strong convexity": budget.strong_convexity,
    }
    if request.method not in CERTIFIED:
        return {"promised": False, **said}
    if request.method == "scratch":
        return {
            "promised": True,
            **said,
            "epsilon": 0.0,
            "delta": 0.0,
            "psi limit": 0.0,
            "psi": {},
            "composed epsilon": 0.0,
        }
    if request.method == "dp":
        found = privacy_accounting.guarantee(
            histories, histories.oracle, histories.forgotten, budget.epsilon, budget.delta
        )
        return {"promised": True, **found}
    nodes = (
        histories.oracle if request.method == "last" else [request.node]
    )  # its noise covers the whole history
    psi = along(histories, nodes, request.clients, budget)
    return {
        "promised": True,
        **said,
        "psi limit": replace(budget, sigma=request.sigma).limit,
        "psi": {str(c): float(value) for c, value in zip(request.clients, psi, strict=True)},
        "composed epsilon": _composed(histories, request),
    }


def _composed(histories: Histories, request: Request) -> float:
    """The least epsilon, at the request's delta, that all noises of the present history give the
    worst client.

    A client that worked in several branches is covered by the noise at each node; Gaussian
    mechanisms compose like one with the root of the sum of the squares of Psi/sigma. Theorem 5.3
    looks at each node by itself.
    """
    made_by = {b.request.node: b.request.sigma for b in histories.finished}
    worst = 0.0
    for client in histories.forgotten:
        squares = 0.0
        for node in histories.oracle:
            moved, sigma = histories.psi(node[0], request.budget)[node[1], client], made_by[node]
            squares += 0.0 if moved == 0 else (moved / sigma) ** 2 if sigma else np.inf
        worst = max(worst, float(np.sqrt(squares)))
    return epsilon_at(worst, request.budget.delta)


def _scored(made: Run, score: str) -> dict[str, float | None]:
    """How good the new model is, and on what."""
    value = _last(made, score)
    if score == HELD_OUT:
        return {"on remaining clients": None, "on held-out data": value}
    return {"on remaining clients": value}


def _last(run: Run, score: str) -> float | None:
    value = float(run.metric(score)[-1])
    return None if np.isnan(value) else value


def evidence(run: Run) -> dict[str, Any]:
    """What a run's ledger says, as hashes: the chain of its rounds, the facts beside them, and the
    file itself.
    """
    facts = hashlib.sha256()
    for key in ("clients", "federation", "initial", "keep", "limit", "fading", "seed"):
        facts.update(f"{key}={run.meta.get(key)}\n".encode())
    for name in ("sizes", "importance", "optimism"):
        found = run.array(name)
        facts.update(
            name.encode() + (b"" if found is None else np.ascontiguousarray(found).tobytes())
        )
    facts.update(np.ascontiguousarray(members_of(run)).tobytes())
    return {
        "rounds": run.rounds,
        "digest": run.digest,
        "facts": facts.hexdigest(),
        "experiment": hashlib.sha256(run.experiment.encode()).hexdigest(),
        "file": None if run.path is None else file_hash(run.path / DATABASE),
    }


def file_hash(path: Path) -> str | None:
    """The hash of a ledger's file; None while a log of changes lies beside it."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        return None
    if not path.exists():
        raise LedgerError(f"{path} is gone, and the certificate rests on it")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_hash(run: Run, n: int) -> dict[str, Any]:
    """The hash that the ledger has of a model, and of the file it lies in."""
    found = run.model_file(n)
    return {"content": run.model_hash(n), "file": None if found is None else file_hash(found)}


def canonical(document: Mapping[str, Any]) -> bytes:
    """The one way to write a certificate down."""
    return (json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def digest_of(document: Mapping[str, Any]) -> str:
    """The hash of a certificate without its own."""
    return hashlib.sha256(
        canonical({k: v for k, v in document.items() if k != "digest"})
    ).hexdigest()


def write(document: Mapping[str, Any], folder: Path) -> Path:
    """Write the certificate of a branch; with it, the request is done."""
    path = folder / CERTIFICATE
    write_whole(path, canonical(document))
    return path


def read(path: Path) -> dict[str, Any]:
    """A certificate as it was written, to the byte; anything else is refused."""
    try:
        content = path.read_bytes()
        document = json.loads(content)
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise LedgerError(f"{path} is no certificate: {error}") from error
    if not isinstance(document, dict) or document.get("certificate") != FORMAT:
        raise LedgerError(f"{path} is no certificate that this poise reads")
    if content != canonical(document) or document.get("digest") != digest_of(document):
        raise LedgerError(f"{path} was altered: it is not what its digest says")
    return document
