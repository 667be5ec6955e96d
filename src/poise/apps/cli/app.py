"""All verbs of the ``poise`` command, and how errors become messages and exit codes."""

from __future__ import annotations

import io
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, NoReturn, Optional

import click
import typer

from poise.apps.cli.backend_options import BackendOptions
from poise.apps.cli.deploy_verbs import deploy
from poise.apps.cli.export import export
from poise.apps.cli.keys import keys
from poise.apps.cli.options import (
    AsJson,
    Erase,
    GoBack,
    OptionValues,
    Plan,
    PresetArm,
    Training,
    dataclass_options,
    declared_options,
)
from poise.apps.cli.ui import ui
from poise.config.run_options import RunOptions
from poise.config.sweep_options import SweepOptions
from poise.config.unlearn_request import UnlearnRequest
from poise.core.collector import imports
from poise.core.errors import InvalidOption, PoiseError

# typer 0.20 escapes "[default: …]" for rich even where rich does not print the help
typer.core.HAS_RICH = False

app = typer.Typer(
    name="poise",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="""Federated learning with explicit client weights.

    First steps:  poise demo  ·  poise new my_project  ·  poise list  ·
    poise run exp.toml  ·  poise report runs/exp""",
)
data = typer.Typer(no_args_is_help=True, help="List, download and verify data sets.")
app.add_typer(data, name="data")
app.add_typer(deploy, name="deploy")
app.add_typer(keys, name="keys")
app.command()(export)
app.command()(ui)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the versions of poise and its packages, and exit."
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="With --version: print one JSON document.")
    ] = False,
) -> None:
    """Handle ``poise --version``."""
    if version:
        from poise.apps.cli.versions import show_versions

        show_versions(json)
        raise typer.Exit
    if json:
        raise InvalidOption(
            "--json stands before the verb",
            "write it after the verb, for example: poise list --json",
        )


Runs = Annotated[
    list[Path], typer.Argument(help="Run folders, or folders with one run per seed.")
]
DatasetName = Annotated[
    str, typer.Argument(help="Name of the data set; see `poise data list`.")
]


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for experiment files and runs.")
    ] = Path("runs/demo"),
    page: Annotated[Path, typer.Option(help="Page to write.")] = Path("report.html"),
    seeds: Annotated[
        str, typer.Option(help="Seeds of every experiment: 0..4 or 0,2,5.")
    ] = "",
    json: AsJson = False,
) -> None:
    """Show in a minute what poise does, on 50 unequal clients; write report.html.

    Six acts: inspect, explain, train, audit, unlearn, slow clients. The data ships with
    scikit-learn, so the demo downloads nothing.

    Example: poise demo --seeds 0..2 --page story.html
    """
    with imports(freeze=True):
        from poise.apps.cli.demo import run_demo

    run_demo(out, page, seeds, json)


@app.command()
def new(
    name: Annotated[
        Path,
        typer.Argument(
            metavar="NAME", help="Folder to make; its name is the package's."
        ),
    ],
    json: AsJson = False,
) -> None:
    """Make a project: your own model, data, weighting, experiment file and tests.

    It runs as it is; then replace the parts one by one.

    Example: poise new my_project && cd my_project && poise run experiment.toml
    """
    from poise.apps.cli.new import new_project

    new_project(name, json)


@app.command()
@declared_options(RunOptions, without=("seed", "backend", "start"), unset=True)
@dataclass_options
def run(
    file: Annotated[Path, typer.Argument(help="Experiment file (TOML).")],
    options: OptionValues,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="TABLE.KEY=VALUE", help="Override a value of the file."
        ),
    ] = None,
    seeds: Annotated[
        str, typer.Option(help="Seeds that replace those of the file: 0..4 or 0,2,5.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option(help="Folder for the runs; default runs/<file>.")
    ] = (None),
    shards: Annotated[
        int | None,
        typer.Option(
            help="Split the clients into so many shards, with one model each.", min=1
        ),
    ] = None,
    backend_options: BackendOptions = BackendOptions(),
    json: AsJson = False,
) -> None:
    """Run an experiment file: one run folder per seed.

    Options such as --rounds override the [run] table of the file.

    Ctrl-C stops at the end of the current round. `poise resume` continues the run.
    """
    with imports(freeze=True):
        from poise.apps.cli.run import changes_of, run_file

    changes = [*(set or []), *changes_of(options)]
    if shards is not None:
        from poise.apps.cli.shards import run_shards

        run_shards(
            file,
            shards,
            overrides=changes,
            seeds=seeds,
            out=out,
            backend_options=backend_options,
            json=json,
        )
        return
    run_file(
        file, changes, seeds=seeds, out=out, backend_options=backend_options, json=json
    )


@app.command()
@declared_options(SweepOptions, without=("over",), unset=True)
def sweep(
    file: Annotated[Path, typer.Argument(help="Experiment file (TOML).")],
    options: OptionValues,
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE.KEY=A,B",
            help="Values of a key, or of a whole table, to sweep over; repeatable.",
        ),
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="TABLE.KEY=VALUE", help="Override a value of the file."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the sweep; default runs/<file>-sweep."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check and list all runs; compute nothing."),
    ] = False,
    report: Annotated[
        Path | None, typer.Option(help="HTML page to write at the end.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Run an experiment with several values of its keys, and rank the results.

    Example: poise sweep exp.toml --over solver.lr=0.01,0.1 --over
    weighting=proportional,{name='exp',alpha=0.2} --seeds 0..2 --jobs 2

    The table [sweep] of the file gives the same options. Repeat an interrupted command
    to continue it: finished runs are kept. All configurations are checked first.
    """
    from poise.apps.cli.sweep import continue_sweep, planned, show_plan
    from poise.apps.experiments.sweeping import default_folder

    plan = planned(file, over or [], set or [], options=options, quiet=json)
    folder = out or default_folder(plan.experiment)
    if dry_run:
        show_plan(plan, folder, json)
        return
    continue_sweep(plan, folder, report=report, json=json)


@app.command()
@dataclass_options
def resume(
    path: Annotated[
        Path,
        typer.Argument(help="Run folder, a folder with one run per seed, or a sweep."),
    ],
    rounds: Annotated[
        int | None, typer.Option(help="New total number of rounds.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(hidden=True)] = None,
    go_back: GoBack = False,
    backend_options: BackendOptions = BackendOptions(),
    json: AsJson = False,
) -> None:
    """Continue a stopped run from its last good round; the result is bit-identical.

    If damaged files take the run back by several rounds, the command asks first. The
    old ledger stays in the run folder under another name.

    A sweep continues with one run at a time. To continue a sweep with several jobs,
    repeat the `poise sweep` command.
    """
    with imports(freeze=True):
        from poise.apps.cli.run import refuse_jobs, resume_runs

    refuse_jobs(jobs)
    resume_runs(
        path, rounds, go_back=go_back, backend_options=backend_options, json=json
    )


@app.command()
def inspect(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE|SOURCE", help="Experiment file, or name of a data set."
        ),
    ],
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override an option of [data]."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the federation.")] = 0,
    labels: Annotated[
        bool, typer.Option("--labels", help="Compare class labels as well as features.")
    ] = False,
    out: Annotated[Path, typer.Option(help="HTML page to write.")] = Path(
        "inspection.html"
    ),
    keep: Annotated[
        Path | None,
        typer.Option(help="Also save the similarity graph to this safetensors file."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Measure how different the clients' data are, before any training.

    Shows client sizes, class distributions, the similarity graph, and typical clients.

    Example: poise inspect digits --set partition=dirichlet --set alpha=0.1 --set
    clients=20
    """
    with imports(freeze=True):
        from poise.apps.cli.inspect_data import show_inspection

    show_inspection(
        what, set or [], seed=seed, labels=labels, out=out, json=json, keep=keep
    )


@app.command()
def audit(
    path: Annotated[
        Path, typer.Argument(help="Run folder, or a folder with one run per seed.")
    ],
    alarm: Annotated[
        float,
        typer.Option(
            help="False-alarm rate: suspect clients with a p-value up to this."
        ),
    ] = 0.01,
    out: Annotated[Path, typer.Option(help="HTML page to write.")] = Path("audit.html"),
    json: AsJson = False,
) -> None:
    """Detect free-riders: a score, a p-value and the evidence for every client.

    The audit reads only the run's ledger; it needs no data.
    """
    with imports(freeze=True):
        from poise.apps.cli.audit import show_audit

    show_audit(path, alarm, out=out, json=json)


@app.command()
@declared_options(UnlearnRequest)
def unlearn(
    run: Training,
    options: OptionValues,
    plan: Plan = False,
    erase: Erase = False,
    json: AsJson = False,
) -> None:
    """Unlearn clients: restart from an early model, add noise, retrain without them.

    poise picks the latest model that the clients hardly changed, and hides their
    remaining influence with noise. The command writes a new branch of the run and
    certificate.json. Requests accumulate. Repeat an interrupted command to finish it.

    See the cost first: poise unlearn RUN --clients 3,7 --plan
    """
    with imports(freeze=True):
        from poise.apps.cli.unlearn import run_request
        from poise.unlearning.shards import holds_shards

    if options["method"] == "shards" or holds_shards(run):
        from poise.apps.cli.shards import refuse_erasing_shards, request_shards

        refuse_erasing_shards(erase)
        request_shards(run, options, plan=plan, json=json)
        return
    run_request(run, options, plan=plan, erase=erase, json=json)


@app.command()
def verify(
    certificate: Annotated[
        Path, typer.Argument(help="certificate.json in the branch folder.")
    ],
    run: Annotated[
        Path | None,
        typer.Option(help="Run folder of the training, if the branch is elsewhere."),
    ] = None,
    public_key: Annotated[
        Optional[list[Path]],  # noqa: UP045 - typer's way of repeatable options
        typer.Option(help="File of a public key that you trust; repeatable."),
    ] = None,
    import_: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import a module of yours that declares parts of the run; repeatable.",
        ),
    ] = None,
    nodes: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the public keys of the nodes (node-3/node.pub)."
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Check a certificate: recompute every statement from the ledger and the models.

    The command names the first file or value that was altered. With --public-key it
    also checks who signed the certificate; without, it names the key. The command
    imports no code that the run names, only modules that you give with --import.
    """
    with imports(freeze=True):
        from poise.apps.cli.unlearn import import_parts, verify_certificate

    import_parts(import_ or [])
    verify_certificate(certificate, run, public_key or [], nodes=nodes, json=json)


@app.command()
@dataclass_options
def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE|RUN|NAME",
            help="Experiment file, run folder, or name of a reproduction.",
        ),
    ],
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="TABLE.KEY=VALUE", help="Override a value of the file."
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed to use; default: the experiment's first seed."),
    ] = None,
    preset: PresetArm = PresetArm(),
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help=(
                "Write an HTML page; for convex tasks it plots bound, predicted bias "
                "and run."
            )
        ),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="Save the result in the run folder; `poise ui` shows it."
        ),
    ] = False,
    json: AsJson = False,
) -> None:
    """Predict from theory, before training: true objective, noise, bounds, warnings and fixes.

    Example: poise explain exp.toml --set sampler.name=md
    """
    with imports(freeze=True):
        from poise.apps.cli.explain import show_explanation

    show_explanation(
        what, set or [], seed=seed, preset=preset, out=out, keep=keep, json=json
    )


@app.command("list")
def list_parts(
    slot: Annotated[
        str,
        typer.Argument(
            help="solvers, samplers, clocks, weightings, servers, models, recipes, …"
        ),
    ] = "",
    json: AsJson = False,
) -> None:
    """List the parts for each slot, with their options."""
    from poise.apps.cli.listing import show_parts

    show_parts(slot, json)


@app.command()
def reproduce(
    name: Annotated[
        str, typer.Argument(help="Name of the reproduction; see --list.")
    ] = "",
    scale: Annotated[
        str,
        typer.Option(help="small (minutes on two cores) or paper (the paper's sizes)."),
    ] = "small",
    seeds: Annotated[
        str, typer.Option(help="Seeds that replace those of the preset: 100..104.")
    ] = "",
    cells: Annotated[
        str, typer.Option(help="Only these cells, separated by commas.")
    ] = "",
    arms: Annotated[
        str, typer.Option(help="Only these arms (methods), separated by commas.")
    ] = "",
    out: Annotated[Optional[Path], typer.Option(help="Folder for the runs.")] = None,  # noqa: UP045
    list: Annotated[
        bool, typer.Option("--list", help="List all reproductions.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Repeat a paper's experiment, compare the numbers, and check the paper's claims.

    Repeat an interrupted command to continue it. Runs that a selection shares with an
    earlier command in the same folder are used again.

    Example: poise reproduce mansour-r90 --seeds 100..104 --cells iid --arms fedavg
    """
    with imports(freeze=True):
        from poise.apps.cli import reproduce as reproduction

    if list or not name:
        reproduction.show_presets(json)
    else:
        selection = reproduction.selected(seeds, cells, arms=arms)
        reproduction.reproduce(name, scale, selection=selection, out=out, json=json)


@app.command()
def report(
    runs: Runs,
    out: Annotated[Path, typer.Option(help="HTML page to write.")] = Path(
        "report.html"
    ),
    json: AsJson = False,
) -> None:
    """Write one self-contained HTML page about runs: curves, weights, clients and scores."""
    with imports(freeze=True):
        from poise.apps.cli.report import write_report

    write_report(runs, out, json)


@app.command()
def compare(
    runs: Runs,
    target: Annotated[
        list[float] | None,
        typer.Option(
            help="Report the first round that reaches this accuracy; repeatable."
        ),
    ] = None,
    pairwise: Annotated[
        bool,
        typer.Option(
            "--pairwise", help="Also compare every two of more than two experiments."
        ),
    ] = False,
    json: AsJson = False,
) -> None:
    """Compare runs: scores with 95 % intervals over seeds, and significant differences.

    Two experiments stand side by side. More are ranked, best first, each named by what
    differs.

    Example: poise compare runs/fedavg runs/fedprox
    """
    with imports(freeze=True):
        from poise.apps.cli.report import show_comparison

    show_comparison(runs, target or [], pairwise, json)


@data.command("list")
def data_list(json: AsJson = False) -> None:
    """List the data sets that poise knows, and where they are on this machine."""
    from poise.apps.cli.datasets import show_datasets

    show_datasets(json)


@data.command("fetch")
def data_fetch(name: DatasetName, json: AsJson = False) -> None:
    """Download a data set from its official source and verify its checksum.

    Repeat an interrupted command to continue the download.
    """
    from poise.apps.cli.datasets import fetch_dataset

    fetch_dataset(name, json)


@data.command("verify")
def data_verify(name: DatasetName, json: AsJson = False) -> None:
    """Check a data set's files against their checksums."""
    from poise.apps.cli.datasets import verify_dataset

    verify_dataset(name, json)


def main() -> None:
    """Run the command line; user errors print a message and a hint, no traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # not every locale has κ and ≤
    warnings.formatwarning = _one_line
    try:
        code = app(prog_name="poise", standalone_mode=False)
    except PoiseError as error:
        _fail(error.message, error.hint, code=error.exit_code)
    except click.ClickException as error:
        if isinstance(error, click.UsageError):
            # click and typer each add the same suggestion; the class of the error adds
            # it again when it shows the message
            message = error.message.partition(" Did you mean")[0]
            vars(error)["message"] = message
        error.show()
        _fail(error.format_message(), "", code=error.exit_code, already_shown=True)
    except OSError as error:
        _fail(
            f"{error.filename or 'the system'}: {error.strerror or error}", "", code=1
        )
    except Exception as error:
        _fail_unreadable(error)
    if code == INTERRUPTED:
        _fail("stopped; the run is saved", "", code=code)
    raise SystemExit(code)


def _one_line(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """Return the text of a warning without the place in the code that gave it."""
    return f"warning: {message}\n"


def _fail_unreadable(error: Exception) -> NoReturn:
    """Report unexpected content of the run folder that the command reads.

    Raises the error again if the command names no run folder: it is a defect of poise.
    """
    from poise.ledger.foreign import UNREADABLE, unreadable

    run = _named_run(sys.argv[1:])
    wanted = os.environ.get("POISE_TRACEBACK")
    if run is None or wanted or not isinstance(error, UNREADABLE):
        raise error
    problem = unreadable(run, error)
    _fail(problem.message, f"{problem.hint} (POISE_TRACEBACK=1 shows where)", code=1)


def _named_run(arguments: list[str]) -> Path | None:
    """The run folder that the command reads, if it names one or a file in one."""
    for text in arguments[1:]:
        for place in (Path(text), *list(Path(text).parents)[:3]):
            if any(os.path.lexists(place / name) for name in (DATABASE, EXPERIMENT)):
                return place
    return None


DATABASE, EXPERIMENT = "ledger.sqlite", "experiment.toml"
INTERRUPTED = 130


def _fail(message: str, hint: str, code: int, already_shown: bool = False) -> NoReturn:
    """Print an error to stderr (and as JSON to stdout with ``--json``), then exit."""
    if "--json" in sys.argv:
        print(json.dumps({"error": message, "hint": hint}))
    if not already_shown:
        print(f"error: {message}", file=sys.stderr)
        if hint:
            print(f"hint:  {hint}", file=sys.stderr)
    raise SystemExit(code) from None
