"""Run golden cases, and summarise their results in hashes and numbers."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import poise
from golden.cases import CASES, Case
from golden.problems import problem
from poise.backends import Local

GOLDEN = Path(__file__).with_name("golden.json")
TABLES = (
    "clients",
    "forgotten so far",
    "request",
    "guarantee",
    "restart",
    "history",
    "grounds",
    "noise",
    "result",
)
"""Tables of certificates without hashes of files, which depend on the machine of the run."""


@cache
def outcome(name: str) -> dict[str, Any]:
    """Run a case; return its ``hashes`` and its ``summary``."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # audits warn of free-riders, and budgets of their calibration
        warnings.simplefilter("ignore")
        return _outcome(CASES[name], Path(folder))


def _outcome(case: Case, folder: Path) -> dict[str, Any]:
    run = _trained(case, folder)
    try:
        result = ended(run)
        if case.audited:
            _add_audit(result, run)
        for number, request in enumerate(case.forget, start=1):
            _add_request(result, run, case, dict(request), number)
    finally:
        run.close()
    return result


def _trained(case: Case, folder: Path) -> Any:
    """Train the run of a case; resume it if the case interrupts it."""
    fed, task = problem(case.problem)
    if case.how == "whole":
        return poise.train(fed, task, **case.options)
    place = folder / "run"
    left = folder / "left"
    done: list[int] = []

    def note(record: Any) -> None:
        done.append(record.index)
        if len(done) == case.after and case.how != "stopped":
            # the files that a process leaves if it dies now, with its write-ahead log
            shutil.copytree(place, left)

    with patch("poise.ledger.store.GROUPED", 0.0):  # every round reaches the disk
        first = poise.train(
            fed,
            task,
            out=place,
            callbacks=[note],
            stop=lambda: len(done) >= case.after,
            **case.options,
        )
    first.close()
    if case.how == "torn":
        newest = left / "models" / f"{case.after:08d}.safetensors"
        newest.write_bytes(newest.read_bytes()[:100])
    resumed = place if case.how == "stopped" else left
    return poise.resume(
        resumed,
        federation=fed,
        task=task,
        backend=Local(workers=case.workers),
        go_back=case.how == "torn",
    )


def ended(run: Any) -> dict[str, Any]:
    """Return hashes and a summary of a finished run."""
    metrics = {name: run.metric(name) for name in run.metrics}
    hashes = {
        "model": digest(run.model),
        "weights": digest(run.weights),
        "metrics": digest(
            *[part for name, values in metrics.items() for part in (name, values)]
        ),
        "times": digest(run.times),
        "contributions": digest(
            *[
                part
                for name in run.contributions.dtype.names
                for part in (name, _of(run, name))
            ]
        ),
        "measurements": digest(
            *[
                part
                for name in run.measurements
                for part in (name, run.measurement(name))
            ]
        ),
        "refusals": digest(json.dumps(run.refusals)),
        "bytes": digest(run.bytes_up, run.bytes_down),
        "kept": digest(json.dumps(run.kept)),
        "ledger": run.digest,
    }
    theta = run.model.astype(np.float64)
    summary = {
        "rounds": run.rounds,
        "model norm": float(np.sqrt((theta**2).sum())),
        "model sum": float(theta.sum()),
        "last metrics": {name: _last(values) for name, values in metrics.items()},
        "sums of weights": run.weights.sum(axis=1).tolist(),
        "last time": float(run.times[-1]) if run.rounds else 0.0,
        "refusals": len(run.refusals),
        "kept": run.kept,
    }
    return {"hashes": hashes, "summary": summary}


def _of(run: Any, column: str) -> np.ndarray:
    return np.ascontiguousarray(run.contributions[column])


def _last(values: np.ndarray) -> float | None:
    """Return the newest measurement; the mean over clients if there is one per client."""
    rows = values.reshape(len(values), -1).mean(axis=1)
    measured = rows[~np.isnan(rows)]
    return float(measured[-1]) if len(measured) else None


def _add_audit(result: dict[str, Any], run: Any) -> None:
    events = [event for event in run.events if event.startswith("audit:")]
    audit = poise.audit(run)
    result["hashes"]["audit"] = digest(audit.scores, audit.p_values, audit.by_round)
    result["hashes"]["audit events"] = digest(json.dumps(events))
    result["summary"]["suspects"] = audit.suspects
    result["summary"]["audit events"] = len(events)


def _add_request(
    result: dict[str, Any], run: Any, case: Case, request: dict[str, Any], number: int
) -> None:
    fed, task = problem(case.problem)
    clients = request.pop("clients")
    unlearned = poise.unlearn(
        run, clients, federation=fed, task=task, noise="seeded", **request
    )
    branch = ended(unlearned.run)
    tables = {table: unlearned.certificate[table] for table in TABLES}
    branch["hashes"] |= {
        "start": digest(unlearned.run.models(0)),
        "certificate": digest(json.dumps(tables, sort_keys=True)),
    }
    start = unlearned.run.models(0).astype(np.float64)
    branch["summary"] |= {
        "restart": list(unlearned.restart),
        "reached": unlearned.reached,
        "start norm": float(np.sqrt((start**2).sum())),
        "sigma": tables["noise"]["sigma"],
        "promised": tables["guarantee"]["promised"],
    }
    for table in ("hashes", "summary"):
        result[table] |= {
            f"request {number}: {name}": value for name, value in branch[table].items()
        }


def digest(*parts: str | np.ndarray | torch.Tensor) -> str:
    """Hash texts and arrays, bit for bit."""
    state = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            state.update(part.encode() + b"\0")
            continue
        values = part.detach().numpy() if isinstance(part, torch.Tensor) else part
        array = np.ascontiguousarray(values)
        state.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return state.hexdigest()[:24]


@cache
def fingerprint() -> str:
    """Hash how this machine rounds: products, convolutions, recurrences, elementary functions."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return digest(*_arithmetic())
    finally:
        torch.set_num_threads(threads)


def _fixed(*shape: int) -> np.ndarray:
    """Return numbers between -1 and 1 that are the same on every machine."""
    return ((np.arange(np.prod(shape)) * 7919 % 2003) / 1001.5 - 1).reshape(shape)


def _arithmetic() -> list[Any]:
    results: list[Any] = []
    for dtype in (torch.float32, torch.float64):
        for n, k, m in ((3, 5, 7), (8, 64, 8), (40, 65, 10), (33, 129, 17)):
            left, right = (
                torch.from_numpy(_fixed(*shape)).to(dtype) for shape in ((n, k), (k, m))
            )
            results += [
                left @ right,
                right.T @ left.T,
                left.sum(),
                left.mean(dim=0),
                torch.linalg.vector_norm(left),
            ]
        stack, others = (
            torch.from_numpy(_fixed(*shape)).to(dtype)
            for shape in ((5, 8, 64), (5, 64, 9))
        )
        results.append(
            torch.baddbmm(torch.from_numpy(_fixed(5, 8, 9)).to(dtype), stack, others)
        )
        results += [
            stack.exp(),
            stack.softmax(dim=2),
            stack.log_softmax(dim=2),
            stack.tanh(),
            stack.sigmoid(),
        ]
        results += [
            torch.linalg.vector_norm(stack, dim=2),
            stack.logsumexp(dim=2),
            stack.abs().sqrt(),
        ]
        image, kernel = (
            torch.from_numpy(_fixed(*shape)).to(dtype)
            for shape in ((4, 2, 9, 9), (3, 2, 3, 3))
        )
        image.requires_grad_()
        kernel.requires_grad_()
        out = torch.nn.functional.conv2d(image, kernel)
        out.square().sum().backward()
        results += [out, image.grad, kernel.grad]
        norm = torch.nn.functional.batch_norm(image, None, None, training=True)
        results.append(norm)
        cell = torch.nn.LSTM(3, 4, 2, batch_first=True).to(dtype)
        with torch.no_grad():
            for tensor in cell.parameters():
                tensor.copy_(torch.from_numpy(_fixed(*tensor.shape)))
        states, _ = cell(torch.from_numpy(_fixed(2, 5, 3)).to(dtype))
        states.square().sum().backward()
        results += [states, *(tensor.grad for tensor in cell.parameters())]
    values = _fixed(6, 50)
    results += [
        np.exp(values),
        np.log(values + 1.5),
        values @ values.T,
        values.sum(axis=0),
        np.linalg.norm(values, axis=1),
    ]
    return results
