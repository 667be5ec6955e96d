"""A user's mistake: one clear message that names file, line and the nearest known word; never a
traceback."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults.support import SMALL, Outcome, call, changed, files, shell


@dataclass(frozen=True)
class Mistake:
    """A line of the small experiment, what is written instead, and what the message must say."""

    old: str
    new: str
    says: tuple[str, ...]
    code: int = 2
    at: str = ""  # the text whose line the message names; the new line by default

    @property
    def text(self) -> str:
        return changed(self.old, self.new)

    @property
    def line(self) -> int:
        wanted = self.at or self.new.splitlines()[-1]
        return 1 + [line.strip() for line in self.text.splitlines()].index(
            wanted.strip()
        )


MISTAKES = {
    "unknown-solver-key": Mistake(
        "lr = 0.1", "lrr = 0.1", ("'lrr'", "did you mean 'lr'?")
    ),
    "unknown-solver": Mistake(
        'name = "sgd"',
        'name = "sgdd"',
        ("unknown solver 'sgdd'", "did you mean 'sgd'?"),
    ),
    "unknown-sampler-key": Mistake("m = 4", "k = 4", ("'uniform' has no option 'k'",)),
    "unknown-sampler": Mistake(
        'name = "uniform"', 'name = "unifrom"', ("'unifrom'", "did you mean 'uniform'?")
    ),
    "unknown-run-key": Mistake(
        "rounds = 12", "round = 12", ("'round'", "did you mean 'rounds'?")
    ),
    "unknown-data-key": Mistake(
        "alpha = 0.3", "alhpa = 0.3", ("'alhpa'", "did you mean 'alpha'?")
    ),
    "unknown-source": Mistake(
        'source = "digits"', 'source = "digit"', ("'digit'", "did you mean 'digits'?")
    ),
    "unknown-partition": Mistake(
        'partition = "dirichlet"',
        'partition = "dirichle"',
        ("did you mean 'dirichlet'?",),
    ),
    "unknown-model": Mistake(
        'model = "mlp"', 'model = "mpl"', ("unknown model 'mpl'", "did you mean 'mlp'?")
    ),
    "unknown-model-key": Mistake(
        "hidden = 16", "hiden = 16", ("'hiden'", "did you mean 'hidden'?")
    ),
    "unknown-metric": Mistake(
        '["client_loss"]',
        '["client_los"]',
        ("'client_los'", "'client_loss'"),
        at='metrics = ["client_los"]',
    ),
    "unknown-rule": Mistake(
        'keep = "last"', 'keep = "lats"', ("'lats'", "did you mean 'last'?")
    ),
    "unknown-table": Mistake(
        "[sampler]", "[smapler]", ("unknown table [smapler]", "did you mean 'sampler'?")
    ),
    "unknown-backend": Mistake(
        "rounds = 12", 'rounds = 12\nbackend = "lokal"', ("'lokal'", "'local'")
    ),
    "lr-text": Mistake("lr = 0.1", 'lr = "fast"', ("lr must be a number", "'fast'")),
    "lr-true": Mistake("lr = 0.1", "lr = true", ("lr must be a number",)),
    "lr-negative": Mistake("lr = 0.1", "lr = -0.1", ("lr must be above 0", "-0.1")),
    "lr-zero": Mistake("lr = 0.1", "lr = 0", ("lr must be above 0",)),
    "lr-nan": Mistake("lr = 0.1", "lr = nan", ("lr must be above 0",)),
    "steps-float": Mistake(
        "steps = 2", "steps = 2.5", ("steps must be a whole number",)
    ),
    "steps-negative": Mistake("steps = 2", "steps = -2", ("-2",)),
    "steps-and-epochs": Mistake(
        "steps = 2", "steps = 2\nepochs = 1", ("steps= or epochs=",), at="[solver]"
    ),
    "batch-negative": Mistake(
        "batch_size = 10", "batch_size = -1", ("batch_size", "-1")
    ),
    "m-above-N": Mistake("m = 4", "m = 11", ("m = 11", "10", "choose m <= 10")),
    "m-zero": Mistake("m = 4", "m = 0", ("m must be at least 1",)),
    "m-negative": Mistake("m = 4", "m = -4", ("m must be at least 1",)),
    "m-missing": Mistake("m = 4", "", ("needs m",), at='name = "uniform"'),
    "alpha-zero": Mistake("alpha = 0.3", "alpha = 0", ("alpha",)),
    "alpha-negative": Mistake("alpha = 0.3", "alpha = -1.0", ("alpha", "-1")),
    "alpha-nan": Mistake("alpha = 0.3", "alpha = nan", ("alpha",)),
    "alpha-text": Mistake("alpha = 0.3", 'alpha = "a"', ("alpha must be",)),
    "clients-zero": Mistake("clients = 10", "clients = 0", ("clients", "0")),
    "clients-negative": Mistake("clients = 10", "clients = -10", ("clients", "-10")),
    "clients-text": Mistake(
        "clients = 10", 'clients = "ten"', ("clients", "whole number")
    ),
    "clients-too-many": Mistake(
        "clients = 10", "clients = 301", ("301 clients", "300 samples")
    ),
    "samples-negative": Mistake("samples = 300", "samples = -300", ("samples", "-300")),
    "importance": Mistake(
        "clients = 10",
        'clients = 10\nimportance = "sise"',
        ("'sise'", "did you mean 'size'?"),
    ),
    "importance-texts": Mistake(
        "clients = 10", 'clients = 10\nimportance = ["a"]', ("'a'",)
    ),
    "importance-short": Mistake(
        "clients = 10", "clients = 10\nimportance = [1.0, 2.0]", ("10 clients",)
    ),
    "hidden-negative": Mistake(
        "hidden = 16",
        "hidden = -16",
        ("hidden must be whole numbers above 0, not -16",),
    ),
    "hidden-float": Mistake(
        "hidden = 16",
        "hidden = 1.5",
        ("hidden must be whole numbers above 0, not 1.5",),
    ),
    "steps-huge": Mistake("steps = 2", f"steps = {10**30}", ("steps", "64 bits")),
    "rounds-zero": Mistake("rounds = 12", "rounds = 0", ("rounds must be at least 1",)),
    "rounds-negative": Mistake(
        "rounds = 12", "rounds = -5", ("rounds must be at least 1",)
    ),
    "rounds-float": Mistake(
        "rounds = 12", "rounds = 1.5", ("rounds must be a whole number",)
    ),
    "rounds-text": Mistake(
        "rounds = 12", 'rounds = "many"', ("rounds must be a whole number",)
    ),
    "rounds-missing": Mistake("rounds = 12", "", ("the run has no end",), at="[run]"),
    "time-endless": Mistake(
        "rounds = 12", "time = inf", ("time must be above 0 and finite",)
    ),
    "time-text": Mistake("rounds = 12", 'time = "long"', ("time must be a number",)),
    "time-true": Mistake("rounds = 12", "time = true", ("time must be a number",)),
    "evaluate-never": Mistake(
        "rounds = 12", "rounds = 12\nevaluate_every = 0", ("evaluate_every",)
    ),
    "seeds-number": Mistake(
        "rounds = 12", "rounds = 12\nseeds = 3", ("seeds must be a list",)
    ),
    "seeds-negative": Mistake(
        "rounds = 12", "rounds = 12\nseeds = [-1]", ("seeds must be a list",)
    ),
    "seeds-empty": Mistake(
        "rounds = 12", "rounds = 12\nseeds = []", ("seeds must be a list",)
    ),
    "seeds-twice": Mistake(
        "rounds = 12", "rounds = 12\nseeds = [1, 1]", ("a seed twice",)
    ),
    "metrics-text": Mistake(
        'metrics = ["client_loss"]',
        'metrics = "client_loss"',
        ("metrics must be a list",),
    ),
    "bad-updates": Mistake(
        "rounds = 12", 'rounds = 12\nbad_updates = "ignore"', ("bad_updates", "drop")
    ),
    "backend-number": Mistake(
        "rounds = 12",
        "rounds = 12\nbackend = 3",
        ("backend must be a name or a table",),
    ),
    "solver-not-a-table": Mistake(
        "[data]", "solver2 = 3\n[data]", ("unknown table",), at="solver2 = 3"
    ),
    "attacks-not-a-list": Mistake(
        "[data]", "attacks = 3\n[data]", ("attacks must be an array",), at="attacks = 3"
    ),
    "no-source": Mistake(
        'source = "digits"', "", ("[data] has no source",), at="[data]"
    ),
    "no-model": Mistake('model = "mlp"', "", ("[task] has no model",), at="[task]"),
    "no-name": Mistake('name = "sgd"', "", ("[solver] has no name",), at="[solver]"),
    "model-of-other-data": Mistake(
        'model = "mlp"\nhidden = 16', 'model = "lstm"', ("lstm takes text",)
    ),
    "model-too-large": Mistake(
        'model = "mlp"\nhidden = 16', 'model = "cnn"', ("cnn takes images",)
    ),
    "loss-of-numbers": Mistake(
        "hidden = 16", 'hidden = 16\nloss = "mse"', ("mse needs numbers",)
    ),
    "durations-short": Mistake(
        "[run]",
        '[clock]\nname = "synchronous"\ndurations = [1.0]\n[run]',
        ("1 durations",),
        at="durations = [1.0]",
    ),
    "corruption-rate": Mistake(
        "clients = 10",
        'clients = 10\ncorruption = {name = "flip-labels", rate = 2.0}',
        ("rate = 2.0",),
    ),
    "attack-unknown-key": Mistake(
        "[run]",
        (
            '[[attacks]]\nname = "mimic"\nclients = [0]\n[[attacks]]\nname = "mimic"\nclients = '
            "[1]\nnose = 1.0\n[run]"
        ),
        ("'mimic' has no option 'nose'", "did you mean 'noise'?"),
        at="nose = 1.0",
    ),
    "attack-of-nobody": Mistake(
        "[run]",
        (
            '[[attacks]]\nname = "mimic"\nclients = [0]\n[[attacks]]\nname = "mimic"\nclients = '
            "[10]\n[run]"
        ),
        ("there is no client 10",),
        at="clients = [10]",
    ),
    "attack-without-clients": Mistake(
        "[run]",
        '[[attacks]]\nname = "scaled"\n[run]',
        ("needs clients",),
        at='name = "scaled"',
    ),
    "unlearning-key": Mistake(
        "[run]",
        "[unlearning]\nepslion = 1.0\n[run]",
        ("'epsilon'",),
        at="epslion = 1.0",
    ),
    "unlearning-type": Mistake(
        "[run]", '[unlearning]\ndelta = "x"\n[run]', ("delta must",), at='delta = "x"'
    ),
    "unlearning-bound": Mistake(
        "[run]", "[unlearning]\ndelta = 1.5\n[run]", ("delta must",), at="delta = 1.5"
    ),
    "aggregator-unknown": Mistake(
        "[run]",
        '[aggregator]\nname = "medain"\n[run]',
        ("'median'",),
        at='name = "medain"',
    ),
    "channel-option": Mistake(
        "[run]",
        '[channel]\nname = "top-k"\nshare = 2.0\n[run]',
        ("share",),
        at="share = 2.0",
    ),
    "personal-unknown": Mistake(
        "rounds = 12",
        'rounds = 12\npersonal = "batchnrom"',
        ("'batchnrom'", "'batchnorm'"),
    ),
    "personal-without-layers": Mistake(
        "[run]",
        '[personal]\nname = "batchnorm"\n[run]',
        ("batch-norm",),
        at="[personal]",
    ),
    "parts-that-do-not-fit": Mistake(
        "[run]",
        (
            '[clock]\nname = "asynchronous"\ndurations = "F80"\n[weighting]\nname = '
            '"time-based"\n[run]'
        ),
        ("TimeBased", "but Uniform selects some clients only", "use Full()"),
        at="[weighting]",
    ),
    "keep-updates-number": Mistake(
        "rounds = 12", "rounds = 12\nkeep_updates = 1", ("true or false",)
    ),
    "audit-unknown": Mistake(
        "rounds = 12", 'rounds = 12\naudit = "wran"', ("'wran'", "did you mean 'warn'?")
    ),
    "broken-toml": Mistake("lr = 0.1", "lr = = 0.1", ("line 15",), at="lr = = 0.1"),
    "key-twice": Mistake("lr = 0.1", "lr = 0.1\nlr = 0.2", (), at="lr = 0.2"),
}


def mistaken(outcome: Outcome, code: int) -> str:
    """The one message of a refused command."""
    assert outcome.code == code, outcome
    assert "Traceback" not in outcome.err
    assert outcome.err.count("error:") == 1, outcome.err
    assert outcome.out == ""
    return outcome.err


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_file_is_named_with_its_line(
    name: str, tmp_path: Path
) -> None:
    mistake = MISTAKES[name]
    file = tmp_path / "exp.toml"
    file.write_text(mistake.text)
    said = mistaken(call("run", file, "--out", tmp_path / "out"), mistake.code)
    assert str(file) in said
    assert all(words in said for words in mistake.says), said
    assert f"line {mistake.line}" in said, said
    assert not (tmp_path / "out").exists(), "nothing was begun"


@pytest.mark.parametrize("name", sorted(MISTAKES)[::6])
def test_with_json_a_mistake_is_one_document(name: str, tmp_path: Path) -> None:
    (tmp_path / "exp.toml").write_text(MISTAKES[name].text)
    outcome = call("run", tmp_path / "exp.toml", "--out", tmp_path / "out", "--json")
    assert outcome.code == MISTAKES[name].code
    document = json.loads(outcome.out)
    assert set(document) == {"error", "hint"}
    assert document["error"] in outcome.err


COMMANDS = {
    "missing-file": (("run", "nosuch.toml"), 2, "cannot read nosuch.toml"),
    "folder": (("run", "."), 2, "cannot read"),
    "binary": (("run", "binary"), 2, "binary is not a text file"),
    "empty": (("run", "empty"), 2, "the run has no end"),
    "set-form": (("run", "good.toml", "--set", "lr=3"), 2, "table.key=value"),
    "set-no-value": (("run", "good.toml", "--set", "solver.lr"), 2, "table.key=value"),
    "set-table": (
        ("run", "good.toml", "--set", "smapler.m=3"),
        2,
        "did you mean 'sampler'?",
    ),
    "set-key": (("run", "good.toml", "--set", "solver.lrr=3"), 2, "did you mean 'lr'?"),
    "set-value": (
        ("run", "good.toml", "--set", "solver.lr=-3"),
        2,
        "--set solver.lr=-3",
    ),
    "set-below-a-value": (
        ("run", "good.toml", "--set", "solver.lr.x=3"),
        2,
        "solver.lr",
    ),
    "set-below-attacks": (
        ("run", "good.toml", "--set", "attacks.name=x"),
        2,
        "attacks",
    ),
    "seeds": (("run", "good.toml", "--seeds", "4..0"), 2, "write 0..4 or 0,2,5"),
    "seeds-words": (("run", "good.toml", "--seeds", "all"), 2, "write 0..4 or 0,2,5"),
    "seeds-twice": (("run", "good.toml", "--seeds", "1,1"), 2, "write 0..4 or 0,2,5"),
    "no-file": (("run",), 2, "Missing argument"),
    "no-such-option": (("run", "good.toml", "--sedes", "1"), 2, "--sedes"),
    "no-such-verb": (("rnu",), 2, "rnu"),
    "resume-nothing": (("resume", "nosuch"), 1, "nosuch contains no run"),
    "resume-other-folder": (("resume", "."), 1, "contains no run"),
    "resume-rounds": (("resume", "nosuch", "--rounds", "few"), 2, "few"),
    "report-nothing": (("report", "nosuch"), 1, "nosuch contains no run"),
    "compare-nothing": (("compare", "nosuch"), 1, "nosuch contains no run"),
    "list-nothing": (("list", "sampler"), 2, "did you mean 'samplers'?"),
    "fetch-nothing": (("data", "fetch", "mnits"), 2, "mnits"),
    "verify-nothing": (("data", "verify", "mnits"), 2, "mnits"),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "good.toml").write_text(SMALL)
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "empty").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("quiet", [False, True], ids=["text", "json"])
def test_a_wrong_command_is_refused_in_one_message(
    name: str, quiet: bool, here: Path
) -> None:
    arguments, code, says = COMMANDS[name]
    before = files(here)
    outcome = call(
        *arguments, *(["--json"] if quiet and name != "no-such-verb" else [])
    )
    assert outcome.code == code, outcome
    assert says in outcome.err
    assert "Traceback" not in outcome.err
    if quiet and name != "no-such-verb":
        assert says in " ".join(json.loads(outcome.out).values())
    else:
        assert outcome.out == ""
    assert files(here) == before, "nothing was written"


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("run", "typo.toml"), ("run", "binary", "--json")]
)
def test_mistakes_in_a_real_process(arguments: tuple[str, ...], here: Path) -> None:
    (here / "typo.toml").write_text(changed("lr = 0.1", "lrr = 0.1"))
    outcome = shell(*arguments, cwd=here)
    assert outcome.code == 2
    assert "Traceback" not in outcome.err
    assert outcome.err.startswith("error: ")
    if "--json" in arguments:
        assert "error" in json.loads(outcome.out)
    else:
        assert (outcome.out, outcome.err.splitlines()[0]) == (
            "",
            "error: typo.toml, line 15: [solver] 'sgd' has no option 'lrr'",
        )


@pytest.mark.parametrize("quiet", [False, True], ids=["text", "json"])
def test_a_client_that_diverges_is_named_with_the_round_and_what_to_change(
    quiet: bool, here: Path
) -> None:
    outcome = call(
        "run",
        "good.toml",
        "--set",
        "solver.lr=1e30",
        "--out",
        "out",
        *(["--json"] if quiet else []),
    )
    assert outcome.code == 1
    assert "Traceback" not in outcome.err
    message = next(
        line for line in outcome.err.splitlines() if line.startswith("error:")
    )
    assert "round 0: client " in message
    assert "not finite" in message
    assert "lower the learning rate" in outcome.err
    if quiet:
        assert "not finite" in json.loads(outcome.out)["error"]
