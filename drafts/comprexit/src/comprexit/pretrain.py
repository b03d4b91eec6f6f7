"""The paper's two training phases and its evaluation, on one process or many (section 3.5).

torchrun --nproc-per-node 4 -m comprexit.pretrain ntp --model meta-llama/Llama-3.2-1B --data SlimPajama-6B --out ntp
torchrun --nproc-per-node 4 -m comprexit.pretrain sft --model … --data SQuAD.jsonl.gz --start ntp --out sft
python -m comprexit.pretrain eval --model … --data SQuAD-dev.jsonl.gz --start sft
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

from claimlab.smollm import load_causal_lm

from .arms import ARMS, Shape, get_arm
from .compressor import Compressor
from .data import mrqa, text
from .frozen_lm import FrozenLM
from .metrics import exact_match, token_f1
from .training import NEXT_TOKEN, QUESTIONS, Batch, Recipe, train

CONTEXT, CONTINUATION = 512, 128
NEXT_TOKEN_BATCH, QUESTION_BATCH = 16, 32


def run(
    phase: str,
    *,
    model: Any = "smollm2",
    tokenizer: Any = None,
    data: Sequence[Path] = (),
    arm: str = "comprexit",
    ratio: int = 4,
    start: Path | None = None,
    out: Path = Path("checkpoint"),
    steps: int | None = None,
    batch_size: int | None = None,
    context: int = CONTEXT,
    shape: Shape | None = None,
    seed: int = 0,
    mixed_precision: str = "no",
) -> dict[str, float]:
    """Train (`ntp`, `sft`) or evaluate (`eval`) one method; returns its last loss, or exact match and F1.

    Arguments:
        model: a name for `load_causal_lm`, or a model, with its `tokenizer`.
        data: `ntp`: one folder in the `datasets` format; `sft` and `eval`: MRQA files.
        start: folder of the compressor to go on from, or to evaluate.
        steps: default: the paper's for `ntp`, one epoch for `sft`.

    Raises:
        ValueError: for an unknown phase or method, or missing data.
    """
    if phase not in ("ntp", "sft", "eval"):
        raise ValueError(f"phase must be ntp, sft or eval, got {phase!r}")
    if not data:
        raise ValueError(f"{phase} needs data: a datasets folder for ntp, MRQA files (.jsonl.gz) for sft and eval")
    chosen = get_arm(arm)
    accelerator = Accelerator(mixed_precision=mixed_precision)
    if isinstance(model, str):
        model, tokenizer = load_causal_lm(model)
    lm = FrozenLM(model.to(accelerator.device))
    torch.manual_seed(seed)
    method = chosen.build(lm, shape or Shape(), ratio)
    if start is not None:
        method = type(method).from_pretrained(start, lm)
    if phase == "eval":
        questions = [q for path in data for q in mrqa.read_mrqa(path)]
        return evaluate(method, tokenizer, questions, context)

    rng = np.random.default_rng([seed, accelerator.process_index])
    recipe, batches = _phase(phase, tokenizer, data, steps, batch_size, context, rng, accelerator.num_processes)
    recipe = replace(recipe, learning_rate=chosen.published_learning_rate)
    points = train(method, batches, recipe, every=max(1, recipe.steps // 20), accelerator=accelerator, checkpoint=out)
    accelerator.wait_for_everyone()
    return {"loss": points[-1].loss}


def _phase(
    phase: str,
    tokenizer: Any,
    data: Sequence[Path],
    steps: int | None,
    batch_size: int | None,
    context: int,
    rng: np.random.Generator,
    processes: int,
) -> tuple[Recipe, Iterator[Batch]]:
    if phase == "ntp":
        size = batch_size or NEXT_TOKEN_BATCH
        return replace(NEXT_TOKEN, steps=steps or NEXT_TOKEN.steps), _streamed(tokenizer, data[0], size, context, rng)
    size = batch_size or QUESTION_BATCH
    questions = [q for path in data for q in mrqa.read_mrqa(path)]
    epoch = max(1, len(questions) // (size * QUESTIONS.accumulation * processes))
    recipe = replace(QUESTIONS, steps=steps or epoch)
    return recipe, mrqa.question_batches(tokenizer, questions, size, context, rng)


def _streamed(tokenizer: Any, folder: Path, size: int, context: int, rng: np.random.Generator) -> Iterator[Batch]:
    """Windows of a data set too large to hold, each process at a random offset into every block of texts."""
    length = context + CONTINUATION * context // CONTEXT
    while True:
        texts = text.read_dataset(folder)
        while block := list(islice(texts, 2000)):
            usable = [one for one in block if len(one) > 2 * length]
            ids = text.windows(tokenizer, usable, length)
            for rows in torch.from_numpy(rng.permutation(len(ids))).split(size):
                yield text.continuation_batch(ids[rows], context)


def evaluate(method: Compressor, tokenizer: Any, questions: Sequence[mrqa.Question], context: int) -> dict[str, float]:
    """SQuAD exact match and F1 of greedy answers; the compressor does not see the question."""
    method.eval()
    matches, f1 = [], []
    for question in questions:
        ids = torch.tensor([tokenizer(question.context, add_special_tokens=False)["input_ids"][:context]])
        asked = torch.tensor([tokenizer(mrqa.prompt(question.question), add_special_tokens=False)["input_ids"]])
        with torch.no_grad():
            compressed = method.compress(ids.to(method.lm.device))
        new = method.generate(compressed, asked.to(method.lm.device), eos_token_id=tokenizer.eos_token_id)
        answer = tokenizer.decode(new[0], skip_special_tokens=True).strip()
        matches.append(exact_match(answer, question.answers))
        f1.append(token_f1(answer, question.answers))
    return {"exact_match": float(np.mean(matches)), "f1": float(np.mean(f1)), "questions": float(len(f1))}


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: `python -m comprexit.pretrain PHASE …`, alone or under torchrun."""
    parser = argparse.ArgumentParser(
        prog="comprexit.pretrain", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("phase", choices=("ntp", "sft", "eval"))
    parser.add_argument("--model", default="smollm2", help="smollm2, a local folder, or a hub name")
    parser.add_argument("--data", type=Path, nargs="+", default=())
    parser.add_argument("--arm", choices=list(ARMS), default="comprexit")
    parser.add_argument("--ratio", type=int, default=4)
    parser.add_argument("--start", type=Path)
    parser.add_argument("--out", type=Path, default=Path("checkpoint"))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--context", type=int, default=CONTEXT)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mixed-precision", choices=("no", "bf16"), default="no")
    options = vars(parser.parse_args(arguments))
    try:
        result = run(options.pop("phase"), **options)
    except (ValueError, FileNotFoundError) as error:
        parser.exit(2, f"error: {error}\n")
    print(" ".join(f"{name}={value:.4g}" for name, value in result.items()))


if __name__ == "__main__":
    main()
