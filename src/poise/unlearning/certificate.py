"""Write and read certificates: the guarantee of a request, its grounds, and hashes of the evidence.

The keys and texts of a certificate are part of its format: `poise verify` recomputes
and compares them. Format 1 did not check that ``eta <= 1/L``; `poise verify` compares
its evidence and numbers, not its texts. Format 3 is signed (see `poise.unlearning.signed`),
names the keys of the clients' nodes, and lists what was erased.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from poise.core.errors import LedgerError
from poise.ledger.files import REQUEST, write_whole
from poise.ledger.foreign import open_regular, parse_json, read_bytes
from poise.ledger.store import DATABASE
from poise.privacy.gaussian import epsilon_at
from poise.results import Run
from poise.training import ALTERED
from poise.unlearning import privacy_accounting
from poise.unlearning.exact import NOT_DELETED
from poise.unlearning.histories import CERTIFICATE, Histories, owners_of
from poise.unlearning.methods import CERTIFIED, COMPLETE, sensitivity_along
from poise.unlearning.proof import Grounds
from poise.unlearning.request import Request, unit_name
from poise.unlearning.restart_tree import Node
from poise.unlearning.retraining import HELD_OUT, SCORE

FORMAT = 3
READABLE = (1, 2, FORMAT)

FACTS = ("clients", "federation", "initial", "keep", "limit", "fading", "seed")
OPTIONAL_FACTS = ("groups", "public mean", ALTERED)
"""The metadata of a run that the evidence covers; the second list where a run has them."""

NODE_KEYS = "node keys"
"""The metadata of a deployed run with the keys of its nodes, by client."""

EACH = "each client by itself"
GROUP = "all clients of the request together"
COMPARED = (
    "the training without the client: the other clients of a round keep their draws, and "
    "their coefficients are scaled to the same sum"
)


def certify(
    histories: Histories,
    request: Request,
    *,
    grounds: Grounds,
    score: str,
    reached: bool,
    unlearned_score: float | None,
    erasure: Mapping[str, Any] | None = None,
    format: int = FORMAT,
) -> dict[str, Any]:
    """Make the certificate of the newest branch.

    Args:
        histories: the training and its branches; the newest branch is the one to
            certify.
        request: the request that the branch fulfils.
        grounds: what the guarantee rests on.
        score: the metric of the target.
        reached: whether retraining reached the target.
        unlearned_score: the score on the unlearned clients; None where it was not
            measured.
        erasure: what was erased after the request, and what stays; None for nothing.
        format: how the evidence is hashed, and whether the document has the entries of
            format 3; the others are those of format 2.
    """
    branch = histories.run(request.index)
    document: dict[str, Any] = {
        "certificate": format,
        # as the ledger recorded it, so that `poise verify` can compare it
        "poise": branch.fact("poise"),
        "clients": list(request.clients),
        "forgotten so far": histories.unlearned,
        "request": {
            "index": request.index,
            "method": request.method,
            "heuristic": request.heuristic,
            "guarantee": request.options.guarantee,
            "target": request.target,
            "min rounds": request.min_rounds,
            "max rounds": request.max_rounds,
        },
        "guarantee": _guarantee(histories, request, proved=not grounds.gaps),
        "restart": {"branch": request.node[0], "round": request.node[1]},
        "history": [list(node) for node in histories.nodes],
        "grounds": {
            "theorem": grounds.theorem,
            "assumed": [
                *_still_assumed(grounds, erased=erasure is not None),
                *_note_on_several_noises(histories),
            ],
            "not proved": list(grounds.gaps),
            "checked": grounds.checked,
            "disclosed": _disclosures(request),
            "public": _public_facts(histories.root),
            "statistics outside the optimiser": grounds.buffers,
        },
        "noise": {
            "sigma": request.sigma,
            "drawn": request.noise,
            "commitment": request.commitment,
        },
        "result": {
            "rounds": branch.rounds,
            "bytes up": int(branch.bytes_up.sum()),
            "bytes down": int(branch.bytes_down.sum()),
            "score": score,
            **_final_scores(branch, score),
            "target reached": reached,
            "on forgotten clients": unlearned_score,
        },
        "evidence": {
            "training": evidence(histories.run(0), format),
            "branches": [
                evidence(histories.run(s), format) for s in range(1, request.index + 1)
            ],
            "restart model": model_hash(
                histories.run(request.node[0]), request.node[1]
            ),
            "start": model_hash(branch, 0),
            "model": model_hash(branch, branch.rounds),
        },
    }
    if format > 2:
        document["client keys"] = client_keys(histories)
        document["erasure"] = erasure
    return {**document, "digest": digest_of(document)}


def client_keys(histories: Histories) -> dict[str, str | None]:
    """Return the key of the node of every unlearned client; None in a simulation."""
    known = json.loads(histories.root.meta.get(NODE_KEYS, "{}"))
    return {str(c): known.get(str(c)) for c in histories.unlearned}


def _still_assumed(grounds: Grounds, *, erased: bool) -> list[str]:
    """Return the assumptions of a guarantee; an erasure deletes what one of them names."""
    return [text for text in grounds.assumed if not erased or text != NOT_DELETED]


def _note_on_several_noises(histories: Histories) -> list[str]:
    """Return the note for histories in which several noises cover the unlearned clients."""
    if len(histories.nodes) < 2:
        return []
    return [
        (
            "the guarantee is for each noise of this history by itself [Fraboni 2023, Thm "
            "5.3]; composed epsilon is for all of them"
        )
    ]


def _disclosures(request: Request) -> list[str]:
    """Return what the certificate and the new model reveal in spite of the noise."""
    notes = []
    if request.sigma and request.noise == "seeded":
        notes.append(
            "the noise is drawn from the run's seed: it hides nothing from anyone who "
            "knows the seed"
        )
    if request.options.plan_sigma:
        notes.append("sigma is planned from the sensitivities of all clients")
    if request.method == "last":
        notes.append("sigma is computed from Psi, so it reveals Psi")
    if request.method == "sifu":
        notes.append("the restart round is chosen by Psi, so it reveals a bound of Psi")
    if request.method in ("sifu", "last"):
        notes.append(
            "this certificate states Psi: keep it from anyone who gets the model"
        )
    return notes


def _public_facts(run: Run) -> list[str]:
    """Return what the guarantee takes as public, because it does not hide it."""
    mean = run.meta.get("public mean")
    if mean is None:
        return []
    return [f"the samples are centred by the {mean}"]


def _guarantee(
    histories: Histories, request: Request, *, proved: bool
) -> dict[str, Any]:
    """Return the guarantee for all clients unlearned so far.

    ``promised`` is False where the method gives no guarantee, or where its proof has a
    gap.
    """
    budget = request.budget
    requested = {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "calibration": budget.calibration,
        "participation": budget.participation,
        "strong convexity": budget.strong_convexity,
    }
    if request.method not in CERTIFIED:
        return {"promised": False, **requested}
    if request.method in COMPLETE:
        return {
            "promised": True,
            **requested,
            "epsilon": 0.0,
            "delta": 0.0,
            "psi limit": 0.0,
            "psi": {},
            "composed epsilon": 0.0,
        }
    if request.method == "dp":
        spent = privacy_accounting.guarantee(
            histories,
            histories.nodes,
            clients=histories.unlearned,
            requested_epsilon=budget.epsilon,
            delta=budget.delta,
        )
        return {"promised": proved, "for": EACH, **spent}
    nodes = [request.node]
    if request.method == "last":
        nodes = histories.nodes  # its noise covers the whole history
    units = request.units
    psi = sensitivity_along(histories, nodes, units=units, budget=budget)
    return {
        "promised": proved,
        **requested,
        "for": GROUP if request.options.guarantee == "group" else EACH,
        "compared with": COMPARED,
        "psi limit": replace(budget, sigma=request.sigma).limit,
        "psi": {
            unit_name(unit): float(value)
            for unit, value in zip(units, psi, strict=True)
        },
        **_group_sources(histories, nodes, request),
        "composed epsilon": _composed_epsilon(histories, request),
    }


def _group_sources(
    histories: Histories, nodes: list[Node], request: Request
) -> dict[str, Any]:
    """Return where the sensitivity of a group comes from; empty for single clients."""
    sources = {
        histories.group_psi(branch, request.budget, unit).source
        for unit in request.units
        if len(unit) > 1
        for branch, _ in nodes
    }
    if not sources:
        return {}
    return {"psi from": sorted(sources)}


def _composed_epsilon(histories: Histories, request: Request) -> float:
    """Return the epsilon that all noises of the present history together give the worst client.

    It holds at the request's delta. The noise at each node covers a client that worked
    in several branches; Gaussian mechanisms compose like one with the root of the sum
    of the squares of Psi/sigma. Theorem 5.3 looks at each node by itself.
    """
    sigma_at = histories.noises
    worst = 0.0
    for unit in histories.units:
        squares = 0.0
        for node in histories.nodes:
            psi = histories.unit_psi(node[0], request.budget, [unit])[node[1], 0]
            sigma = sigma_at[node]
            if psi == 0:
                continue
            squares += (psi / sigma) ** 2 if sigma else np.inf
        worst = max(worst, float(np.sqrt(squares)))
    return epsilon_at(worst, request.budget.delta)


def _final_scores(branch: Run, score: str) -> dict[str, float | None]:
    """Return the score of the new model, under the name of the data that it was measured on."""
    if branch.rounds:
        value = _last_value(branch, score)
    else:
        value = float(branch.meta[SCORE])
    if score == HELD_OUT:
        return {"on remaining clients": None, "on held-out data": value}
    return {"on remaining clients": value}


def _last_value(run: Run, metric: str) -> float | None:
    value = float(run.metric(metric)[-1])
    if np.isnan(value):
        return None
    return value


def evidence(run: Run, format: int = FORMAT) -> dict[str, Any]:
    """Return hashes of a run: the digest chain of its rounds, its metadata, and its files."""
    return {
        "rounds": run.rounds,
        "digest": run.digest,
        "facts": facts_of(run, format),
        "experiment": hashlib.sha256(run.experiment.encode()).hexdigest(),
        "file": None if run.path is None else file_hash(run.path / DATABASE),
    }


def facts_of(run: Run, format: int = FORMAT) -> str:
    """Return a hash of a run's metadata and, since format 2, of its request.json."""
    facts = hashlib.sha256()
    for key in FACTS:
        facts.update(f"{key}={run.meta.get(key)}\n".encode())
    for key in sorted(run.meta):
        if key in OPTIONAL_FACTS or key.startswith(("curvature ", "score")):
            facts.update(f"{key}={run.meta[key]}\n".encode())
    if format > 2 and NODE_KEYS in run.meta:
        facts.update(f"{NODE_KEYS}={run.meta[NODE_KEYS]}\n".encode())
    for name in ("sizes", "importance", "optimism"):
        facts.update(name.encode())
        values = run.array(name)
        if values is not None:
            facts.update(np.ascontiguousarray(values).tobytes())
    facts.update(np.ascontiguousarray(owners_of(run)).tobytes())
    request = None if run.path is None else run.path / REQUEST
    if format > 1 and request is not None and request.exists():
        facts.update(read_bytes(request))
    return facts.hexdigest()


def file_hash(path: Path) -> str | None:
    """Return the hash of a ledger file; None while a write-ahead log lies beside it."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        return None
    if not path.exists():
        raise LedgerError(
            f"{path} is gone, and the certificate rests on it",
            "restore the file from a backup",
        )
    with os.fdopen(open_regular(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_hash(run: Run, n: int) -> dict[str, Any]:
    """Return the recorded hash of the model after n aggregations, and the hash of its file."""
    path = run.model_file(n)
    return {
        "content": run.model_hash(n),
        "file": None if path is None else file_hash(path),
    }


def canonical(document: Mapping[str, Any]) -> bytes:
    """Return a certificate as bytes, in the one format that poise writes and accepts."""
    return (
        json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"
    ).encode()


def digest_of(document: Mapping[str, Any]) -> str:
    """Return the hash of a certificate without its ``digest`` entry."""
    content = {key: value for key, value in document.items() if key != "digest"}
    return hashlib.sha256(canonical(content)).hexdigest()


def write(document: Mapping[str, Any], folder: Path) -> Path:
    """Write the certificate into the folder of its branch; this finishes the request."""
    path = folder / CERTIFICATE
    write_whole(path, canonical(document))
    return path


def read(path: Path) -> dict[str, Any]:
    """Read a certificate; raise `LedgerError` where the file differs from what poise wrote."""
    try:
        content = read_bytes(path)
        document: dict[str, Any] = parse_json(content)
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise LedgerError(
            f"{path} is no certificate: {error}",
            "restore it from a backup, or delete it and repeat its request",
        ) from error
    known = isinstance(document, dict) and type(document.get("certificate")) is int
    if not known or document["certificate"] not in READABLE:
        raise LedgerError(
            f"{path} is no certificate in a format that this poise reads",
            "name a certificate.json, or use the version of poise that wrote it",
        )
    if not _is_whole(document, content):
        raise LedgerError(
            f"{path} was altered: its content does not match its digest",
            "restore the file from a backup",
        )
    return document


def _is_whole(document: dict[str, Any], content: bytes) -> bool:
    """Whether a file is the one that poise writes for this content, with its digest."""
    try:
        same = content == canonical(document)
    except ValueError:  # not a number, or infinite
        return False
    return same and document.get("digest") == digest_of(document)
