"""The command `claimlab`: list, run, check, record, report, assets."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, cast, get_args

import typer
from rich.console import Console
from rich.table import Table

from claimlab import assets, regression, report, site
from claimlab.claims import ClaimResult, judge
from claimlab.errors import ClaimlabError
from claimlab.paper import Paper, Scale, load_paper, paper_names
from claimlab.plan import Plan
from claimlab.runner import Outcome, run_plan
from claimlab.store import Store, write_atomic

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Reproduce the claims of papers, and judge them.")
assets_app = typer.Typer(no_args_is_help=True, help="Real weights and data that come inside registry packages.")
app.add_typer(assets_app, name="assets")
console = Console(width=None if sys.stdout.isatty() else 140)
errors = Console(stderr=True)


def _complain(text: str) -> None:
    """One red line, however long, as it stands."""
    errors.print(text, style="red", highlight=False, markup=False, soft_wrap=True)


def _at_least(least: int) -> Callable[[typer.CallbackParam, int | None], int | None]:
    """A check of an option's number, for an error of one line that names the number."""

    def check(param: typer.CallbackParam, value: int | None) -> int | None:
        if value is not None and value < least:
            raise ClaimlabError(f"{param.opts[0]} {value}: expected {least} or more")
        return value

    return check


OutOption = Annotated[Path, typer.Option("--out", help="Results folder.")]
ScaleOption = Annotated[str, typer.Option("--scale", help="smoke, laptop or paper.")]
JobsOption = Annotated[
    int | None, typer.Option("--jobs", callback=_at_least(1), help="Processes (default: one a core).")
]
PaperArgument = Annotated[str, typer.Argument(help="Slug of an installed paper; see `claimlab list`.")]
PapersArgument = Annotated[list[str] | None, typer.Argument(help="Slugs (default: every installed paper).")]
RESULTS = Path("results")
BENCHMARKS = Path("benchmarks/results.json")


def _scale(text: str) -> Scale:
    if text not in get_args(Scale):
        raise ClaimlabError(f"--scale {text}: expected one of {', '.join(get_args(Scale))}")
    return cast(Scale, text)


def _papers(slugs: list[str] | None) -> list[Paper]:
    return [load_paper(slug) for slug in slugs or paper_names()]


def _execute(store: Store, **options: object) -> tuple[Outcome, list[ClaimResult]]:
    """Run a plan, judge its claims, write claims.md."""
    paper = store.plan.paper
    missing = [name for name in paper.info.assets if not assets.is_cached(name)]
    if missing:
        raise ClaimlabError(f"{paper.slug} needs an asset; run `claimlab assets fetch {' '.join(missing)}`")
    outcome = run_plan(store, console=console, **options)  # pyright: ignore[reportArgumentType]
    measures = store.measures()
    results = [judge(claim, measures) for claim in store.plan.claims]
    title = f"# {paper.info.title}\n\n{paper.slug}, {store.directory.name} scale: {report.summary(results)}\n\n"
    write_atomic(store.directory / "claims.md", title + report.markdown_table(results) + "\n")
    return outcome, results


@app.command("list")
def list_papers() -> None:
    """Installed papers, their claims, and what was recorded."""
    table = Table("paper", "title", "claims", "experiments", "recorded")
    for paper in _papers(None):
        best = report.best_recorded(paper)
        recorded = f"{best[0]}: {report.summary(best[1])}" if best else "nothing"
        table.add_row(paper.slug, paper.info.title, str(len(paper.claims)), "\n".join(paper.experiments), recorded)
    console.print(table if table.row_count else "no paper is installed; `pip install ./packages/<paper>`")


@app.command()
def run(
    paper: PaperArgument,
    scale: ScaleOption = "laptop",
    experiment: Annotated[list[str] | None, typer.Option(help="Only this experiment (may be repeated).")] = None,
    seeds: Annotated[int | None, typer.Option(callback=_at_least(1), help="Seeds of each experiment.")] = None,
    first_seed: Annotated[
        int, typer.Option(callback=_at_least(0), help="First seed; results are kept apart from the usual ones.")
    ] = 0,
    jobs: JobsOption = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Override a setting; marks the run custom.")
    ] = None,
    out: OutOption = RESULTS,
    backend: Annotated[str, typer.Option(help="loky (this machine), dask or ray (your cluster).")] = "loky",
    force: Annotated[bool, typer.Option("--force", help="Run finished seeds again.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print settings, needs and estimate; run nothing.")
    ] = False,
) -> None:
    """Run a paper's experiments and judge its claims. Finished seeds are kept; run again to continue."""
    plan = Plan.make(
        load_paper(paper),
        _scale(scale),
        experiments=experiment or (),
        seeds=seeds,
        first_seed=first_seed,
        settings=set_ or (),
    )
    if dry_run:
        _describe(plan)
        return
    store = Store(out, plan)
    outcome, results = _execute(store, jobs=jobs, backend=backend, force=force)
    if outcome.interrupted:
        done = outcome.ran + outcome.kept
        errors.print(f"interrupted: {done} of {len(plan.tasks)} seeds are kept; run again to continue")
        raise typer.Exit(130)
    report.print_results(console, plan.paper, store.directory.name, results)
    told = f"{outcome.ran} seeds run in {outcome.seconds:.0f} s, {outcome.kept} kept from before"
    if not outcome.ran and not outcome.failures:
        told = f"nothing had to be run: all {outcome.kept} seeds were finished"
    console.print(f"{told}. Results: {store.directory}", highlight=False, soft_wrap=True)
    for failure in outcome.failures:
        _complain(failure)
    if outcome.failures:
        raise typer.Exit(1)


def _describe(plan: Plan) -> None:
    """What `--dry-run` prints."""
    minutes = 0.0
    for name, tasks in plan.experiments.items():
        experiment = tasks[0].experiment
        estimate = experiment.minutes.get(plan.scale)
        minutes += estimate or 0
        console.print(f"[bold]{name}[/bold]: {experiment.summary}", highlight=False)
        console.print(f"  seeds {tasks[0].seed} to {tasks[-1].seed}", highlight=False)
        for field in dataclasses.fields(tasks[0].config):
            console.print(f"  {field.name} = {getattr(tasks[0].config, field.name)!r}", highlight=False, markup=False)
        console.print(f"  needs: {experiment.needs.get(plan.scale, 'nothing but the CPU')}", highlight=False)
        console.print(f"  time: {f'about {estimate:g} min' if estimate else 'no estimate'}", highlight=False)
    console.print(f"{plan.paper.slug} at {plan.scale} scale: about {minutes:g} min estimated; nothing was run")


@app.command()
def check(
    papers: PapersArgument = None, scale: ScaleOption = "smoke", jobs: JobsOption = None, out: OutOption = RESULTS
) -> None:
    """Compare with the recorded numbers, running what is not finished; exit 1 and a table where something moved."""
    failed = False
    for paper in _papers(papers):
        section = regression.load(paper).get(_scale(scale))
        if section is None:
            errors.print(f"{paper.slug}: nothing recorded at {scale} scale", style="red")
            failed = True
            continue
        store = Store(out, Plan.make(paper, _scale(scale)))
        outcome, results = _execute(store, jobs=jobs)
        for failure in outcome.failures:
            _complain(failure)
        changes = regression.compare(section, store.measures(), results)
        bad = bool(outcome.failures) or outcome.interrupted or any(c.failed for c in changes)
        failed |= bad
        if changes:
            table = Table("what", "recorded", "measured", "allowed", "", title=f"{paper.slug}: moved", min_width=60)
            for c in changes:
                table.add_row(c.what, c.recorded, c.measured, c.allowed, "[red]FAILED[/red]" if c.failed else "noted")
            console.print(table)
        console.print(f"{paper.slug}: {'REGRESSION' if bad else 'agrees with the record'} ({scale} scale)")
    if failed:
        raise typer.Exit(1)


@app.command()
def record(paper: PaperArgument, scale: ScaleOption = "laptop", out: OutOption = RESULTS) -> None:
    """Write a finished run's numbers to baseline.toml, and bring the package's README and figures up to date."""
    loaded = load_paper(paper)
    store = Store(out, Plan.make(loaded, _scale(scale)))
    measures = store.measures()
    results = [judge(claim, measures) for claim in loaded.claims]
    regression.record(store, results, _fresh_results(loaded, _scale(scale), out))
    report.update_readme(loaded, store.directory if scale == "laptop" else None)
    console.print(f"recorded {paper} at {scale} scale: {report.summary(results)}", highlight=False)


def _fresh_results(paper: Paper, scale: Scale, out: Path) -> tuple[int, list[ClaimResult]] | None:
    """Verdicts of a complete run on other seeds (`--first-seed`), where there is one."""
    for folder in sorted((out / paper.slug).glob(f"{scale}-from-*")):
        first = int(folder.name.rsplit("-", 1)[1])
        store = Store(out, Plan.make(paper, scale, first_seed=first))
        if store.records().keys() == paper.experiments.keys():
            measures = store.measures()
            return first, [judge(claim, measures) for claim in paper.claims]
    return None


@app.command("report")
def report_command(
    papers: PapersArgument = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write the static site to.")] = None,
    readme: Annotated[Path | None, typer.Option(help="Root README whose scoreboard is brought up to date.")] = None,
    results: Annotated[Path, typer.Option(help="Results folder: runs found there stand beside the record.")] = RESULTS,
    benchmarks: Annotated[Path, typer.Option(help="Timings that the site shows.")] = BENCHMARKS,
) -> None:
    """Print the recorded claims; with --out, write the site; with --readme, the README's tables."""
    loaded = _papers(papers)
    for paper in loaded:
        best = report.best_recorded(paper)
        if best:
            report.print_results(console, paper, best[0], best[1])
        else:
            console.print(f"{paper.slug}: nothing recorded")
        if readme is not None:
            report.update_readme(paper)
    if readme is not None:
        report.update_root_readme(readme, _papers(None))
    if out is not None:
        first = site.build(loaded, out, out=results, benchmarks=benchmarks)
        console.print(f"wrote {first}", highlight=False, soft_wrap=True)


@assets_app.command("list")
def list_assets() -> None:
    """Known assets, their licence, and whether they are here."""
    table = Table("asset", "what", "from", "licence", "here")
    for asset in assets.KNOWN.values():
        here = "yes" if assets.is_cached(asset.name) else "no"
        table.add_row(asset.name, asset.description, f"{asset.client} {asset.package}", asset.licence, here)
    console.print(table)


@assets_app.command("fetch")
def fetch_assets(
    names: Annotated[list[str] | None, typer.Argument(help="Assets to fetch.")] = None,
    paper: Annotated[list[str] | None, typer.Option(help="Fetch what this installed paper needs.")] = None,
) -> None:
    """Fetch assets into the cache and verify them."""
    wanted = [*(names or []), *(name for slug in paper or [] for name in load_paper(slug).info.assets)]
    for name in dict.fromkeys(wanted):
        console.print(f"{name}: {assets.fetch(assets.find(name))}", highlight=False, soft_wrap=True)


def main() -> None:
    """Entry point: one clear line for an error the user can mend; a traceback only with `--debug`."""
    debug = "--debug" in sys.argv
    arguments = [a for a in sys.argv[1:] if a != "--debug"]
    try:
        app(arguments, standalone_mode=True)
    except (ClaimlabError, OSError) as error:
        if debug:
            raise
        _complain(f"error: {error}")
        sys.exit(2)


if __name__ == "__main__":
    main()
