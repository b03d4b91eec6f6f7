"""Run experiments x seeds: in parallel, resumable, one failure never stopping the others."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky.process_executor import TerminatedWorkerError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from threadpoolctl import threadpool_limits

from claimlab import costs
from claimlab.errors import ClaimlabError
from claimlab.plan import Task
from claimlab.run import Run, render, seed_everything
from claimlab.store import ERROR_FILE, SeedResult, Store, git_state, provenance, versions, write_atomic


@dataclass
class Outcome:
    """What a call of `run_plan` did; `failures` has a line each."""

    ran: int = 0
    kept: int = 0
    failures: list[str] = field(default_factory=list)
    interrupted: bool = False
    seconds: float = 0.0


@dataclass(frozen=True)
class Failure:
    """What went wrong, in one line and in full."""

    reason: str
    traceback: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        return cls(f"{type(error).__name__}: {error}".partition("\n")[0], traceback.format_exc())

    def keep(self, what: str, directory: Path) -> str:
        """Write the traceback to the folder; the line to tell."""
        path = directory / ERROR_FILE
        write_atomic(path, self.traceback)
        return f"{what} failed: {self.reason} (traceback in {path})"


def run_plan(
    store: Store, *, jobs: int | None = None, backend: str = "loky", force: bool = False, console: Console | None = None
) -> Outcome:
    """Run what is not finished yet and draw the figures; finished seeds with the same code and settings are kept.

    Arguments:
        jobs: processes (default: one a core); each gets cores / jobs threads.
        backend: `loky` (this machine), `dask` or `ray` (the user's cluster).
        force: run finished seeds again.

    Raises:
        ClaimlabError: the output folder cannot be written or is in use, or the backend is not there.
    """
    console = console or Console()
    outcome = Outcome()
    start = time.monotonic()
    _register(backend)
    with store.exclusive():
        todo = [task for task in store.plan.tasks if force or not _finished(store, task, console)]
        outcome.kept = len(store.plan.tasks) - len(todo)
        try:
            _execute_all(store, todo, jobs, backend, outcome, console)
            _draw_figures(store, {task.experiment.name for task in todo}, outcome)
        except KeyboardInterrupt:
            outcome.interrupted = True
    outcome.seconds = time.monotonic() - start
    return outcome


def _finished(store: Store, task: Task, console: Console) -> bool:
    try:
        return store.record(task) is not None
    except ClaimlabError as error:
        console.print(f"[yellow]{error}; running it again[/yellow]", highlight=False)
        return False


def _execute_all(
    store: Store, tasks: list[Task], jobs: int | None, backend: str, outcome: Outcome, console: Console
) -> None:
    if not tasks:
        return
    paper = store.plan.paper
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jobs = min(jobs or cores, len(tasks))
    threads = max(1, cores // jobs)
    git = git_state(paper.project)
    waiting = {task.name: task for task in tasks}
    with (
        tempfile.TemporaryDirectory() as folder,
        _bars(paper.slug, len(tasks), Path(folder), console) as advance,
        parallel_config(backend=backend),
    ):
        work = [delayed(execute)(t, threads, store.seed_directory(t) / "scratch", Path(folder)) for t in tasks]
        try:
            finished = Parallel(n_jobs=jobs, return_as="generator_unordered")(work)
            for name, result in cast(Iterable[tuple[str, SeedResult | Failure]], finished):
                task = waiting.pop(name)
                if isinstance(result, SeedResult):
                    result.provenance |= {"git": git, "versions": versions(paper.slug)}
                    store.save(task, result)
                    outcome.ran += 1
                    advance(name, f"{result.provenance['seconds']:.1f} s")
                else:
                    outcome.failures.append(result.keep(name, store.seed_directory(task)))
                    advance(name, "failed")
        except TerminatedWorkerError as error:
            outcome.failures.append(
                f"a worker process died (out of memory?) before these were done: {', '.join(waiting)}; "
                f"run again to continue\n{error}"
            )


def execute(task: Task, threads: int, scratch: Path, progress_folder: Path) -> tuple[str, SeedResult | Failure]:
    """Run one task in this process: its name, and the result or what went wrong."""
    progress_file = progress_folder / f"{task.name}.json" if progress_folder.is_dir() else None
    run = Run(task.experiment.name, task.seed, scratch=scratch, progress_file=progress_file)
    start, cpu_start = time.perf_counter(), _cpu_seconds()
    try:
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(threads)
        seed_everything(task.seed)
        with threadpool_limits(limits=threads):
            task.experiment.function(task.config, run)
    except Exception as error:
        return task.name, Failure.of(error)
    seconds, cpu_seconds = time.perf_counter() - start, _cpu_seconds() - cpu_start
    where = provenance(task.seed, threads, seconds, cpu_seconds, costs.peak_memory())
    return task.name, SeedResult(run.measures, run.tables, run.figures, where)


def _cpu_seconds() -> float:
    """Processor time of this process, its threads and the children it has waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _register(backend: str) -> None:
    """Make joblib know the optional backends."""
    try:
        if backend == "dask":
            import distributed

            try:
                distributed.get_client()
            except ValueError:
                raise ClaimlabError("--backend dask needs a running cluster: set DASK_SCHEDULER_ADDRESS") from None
        elif backend == "ray":
            from ray.util.joblib import register_ray  # pyright: ignore[reportMissingImports]

            register_ray()
        elif backend != "loky":
            raise ClaimlabError(f"--backend {backend}: expected loky, dask or ray")
    except ImportError:
        raise ClaimlabError(f"--backend {backend} needs `pip install 'claimlab[{backend}]'`") from None


def _draw_figures(store: Store, changed: set[str], outcome: Outcome) -> None:
    """Draw the figures of every complete experiment that changed or whose figures were not drawn yet."""
    folder = store.directory / "figures"
    complete = store.records()
    for name, maker in store.plan.paper.figure_makers.items():
        drawn = folder / f".{name}"
        if name not in complete or (name not in changed and drawn.exists()):
            continue
        try:
            for figure_name, figure in maker(store.tables(name)).items():
                for kind, content in render(figure).items():
                    write_atomic(folder / f"{figure_name}.{kind}", content)
            write_atomic(drawn, "")
        except Exception as error:
            outcome.failures.append(Failure.of(error).keep(f"figures of {name}", folder))


@contextmanager
def _bars(title: str, total: int, folder: Path, console: Console) -> Iterator[Callable[[str, str], None]]:
    """Progress of the whole and of every running seed on a terminal; one line a finished seed elsewhere.

    Workers leave their state in small files in `folder`; a thread reads them, so that any backend will do.
    """
    if not console.is_terminal:
        yield lambda name, what: console.print(f"{title}: {name}: {what}", highlight=False)
        return

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        whole = progress.add_task(title, total=total)
        done = Event()

        def watch() -> None:
            bars: dict[Path, TaskID] = {}
            while not done.wait(0.4):
                states = _read_states(folder)
                for path in bars.keys() - states.keys():
                    progress.remove_task(bars.pop(path))
                for path, state in states.items():
                    if path not in bars:
                        bars[path] = progress.add_task(path.stem, total=None)
                    text = f"  {path.stem}  {state['description']}"
                    progress.update(bars[path], description=text, completed=state["done"], total=state["total"])

        def advance(name: str, what: str) -> None:
            (folder / f"{name}.json").unlink(missing_ok=True)
            progress.advance(whole)

        watcher = Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield advance
        finally:
            done.set()
            watcher.join()


def _read_states(folder: Path) -> dict[Path, dict[str, Any]]:
    states = {}
    for path in folder.glob("*.json"):
        try:
            states[path] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # finished or being replaced this moment
            continue
    return states
