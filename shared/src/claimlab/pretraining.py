"""What the packages' pretraining commands share: command line, printed losses, checkpoints never half written."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


def parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """A command line for `python -m <module>` with the options that every pretraining has."""
    made = argparse.ArgumentParser(prog=module, description=description, formatter_class=argparse.RawTextHelpFormatter)
    made.add_argument("--out", type=Path, default=Path("checkpoints"))
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--steps", type=int)
    made.add_argument("--batch-size", type=int)
    return made


def call(function: Callable[..., Any], parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> Any:
    """Call the function with the parsed options by name; what it refuses ends the process with one line."""
    options = vars(parser.parse_args(arguments))
    try:
        return function(**options)
    except (ValueError, FileNotFoundError) as error:
        parser.exit(2, f"error: {error}\n")


def printer(accelerator: Any, every: int) -> Callable[[int, Mapping[str, float]], None]:
    """A log that prints the measures of each `every`-th step, once for all processes of an `accelerate.Accelerator`."""

    def log(step: int, measures: Mapping[str, float]) -> None:
        if step % every == 0:
            accelerator.print(step, " ".join(f"{name}={value:.4g}" for name, value in measures.items()), flush=True)

    return log


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write beside the old checkpoint, then put it in its place: an interruption leaves one of the two."""
    import torch

    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(path.suffix + ".part")
    torch.save(state, unfinished)
    os.replace(unfinished, path)
