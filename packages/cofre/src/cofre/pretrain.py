"""Train one arm at the paper's size, on one process or many, and leave a checkpoint for the experiments.

torchrun --nproc-per-node 8 -m cofre.pretrain fp --documents Skylion007/openwebtext --out checkpoints
torchrun --nproc-per-node 8 -m cofre.pretrain consistency --documents … --start checkpoints/fp-seed0.pt --out …
python -m cofre.pretrain image_fp --codes codes.npy --labels labels.npy --out checkpoints
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from claimlab import pretraining

from .convert import convert_mdlm
from .data import array_source, load_codes, pack, read_documents
from .fixed_point import SJFB
from .models import MaskedDenoiser, fp_maskgit, fp_mdlm_small, maskgit_large, mdlm_small
from .objectives import AdaptationObjective, Batch, ConsistencyObjective, MaskedObjective, MaskGITObjective
from .training import (
    CONSISTENCY_OWT,
    CONVERSION_OWT,
    FP_MDLM_OWT,
    IMAGENETTE,
    MDLM_OWT,
    BatchSource,
    Objective,
    Recipe,
    train,
)

RECIPES: dict[str, Recipe] = {
    "mdlm": MDLM_OWT,
    "fp": FP_MDLM_OWT,
    "consistency": CONSISTENCY_OWT,
    "control": CONSISTENCY_OWT,
    "converted": CONVERSION_OWT,
    "image_plain": IMAGENETTE,
    "image_fp": IMAGENETTE,
}
STARTS_FROM = {"consistency": "fp", "control": "fp", "converted": "mdlm"}


def checkpoint_path(folder: Path, arm: str, seed: int) -> Path:
    """File of an arm's checkpoint."""
    return folder / f"{arm}-seed{seed}.pt"


def evaluated_weights(path: Path) -> dict[str, Tensor]:
    """Averaged weights of a checkpoint, or its last ones if it kept no average.

    Raises:
        FileNotFoundError: if there is no such file.
    """
    state = torch.load(path, map_location="cpu", weights_only=True)
    if "average" not in state:
        return state["model"]
    return {
        name.removeprefix("module."): value for name, value in state["average"].items() if name.startswith("module.")
    }


def build(
    arm: str, shape: Mapping[str, Any], start: Path | None, generator: torch.Generator
) -> tuple[nn.Module, Objective]:
    """Model and objective of an arm.

    Raises:
        ValueError: for an unknown arm, or a post-training without the checkpoint that it starts from.
    """
    if arm not in RECIPES:
        raise ValueError(f"unknown arm {arm!r}; there are {', '.join(RECIPES)}")
    if arm in STARTS_FROM and start is None:
        raise ValueError(f"{arm} needs --start, the checkpoint of {STARTS_FROM[arm]!r}")
    sjfb = SJFB(generator=generator)
    plain = arm in ("mdlm", "image_plain")
    if arm.startswith("image"):
        model = maskgit_large(**shape) if plain else fp_maskgit(**shape)
        return model, MaskGITObjective(None if plain else sjfb, class_dropout=0.1, generator=generator)
    base = MaskedObjective(None if plain else sjfb, generator=generator)
    if plain:
        return mdlm_small(**shape), base
    if start is None:
        return fp_mdlm_small(**shape), base
    if arm == "converted":
        teacher = mdlm_small(**shape)
        teacher.load_state_dict(evaluated_weights(start))
        return convert_mdlm(teacher, _three_layers(teacher)), AdaptationObjective(base, teacher.eval())
    model = fp_mdlm_small(**shape)
    model.load_state_dict(evaluated_weights(start))
    return model, ConsistencyObjective(base) if arm == "consistency" else base


def _three_layers(model: MaskedDenoiser) -> tuple[int, int, int]:
    """First, middle and last block: 1, 6 and 12 of twelve."""
    blocks = len(model.blocks)
    return 0, (blocks - 1) // 2, blocks - 1


def text_source(
    documents: str | None, tokenizer: Any, length: int, device: torch.device, process: int = 0, processes: int = 1
) -> BatchSource:
    """Endless batches of packed text; process `k` of `n` takes each n-th document.

    Raises:
        ValueError: if the documents hold less than one sequence.
    """

    def sequences() -> Iterator[Tensor]:
        while True:
            texts = itertools.islice(read_documents(documents), process, None, processes)
            count = 0
            for row in pack((tokenizer.encode(text) for text in texts), length, tokenizer.eos_token_id):
                count += 1
                yield row
            if not count:
                raise ValueError(f"the documents hold less than one sequence of {length} tokens")

    rows = sequences()
    return lambda count: Batch(torch.stack(list(itertools.islice(rows, count))).to(device))


def pretrain(
    arm: str,
    *,
    documents: str | None = None,
    tokenizer: Any = "gpt2",
    codes: Path | None = None,
    labels: Path | None = None,
    start: Path | None = None,
    out: Path = Path("checkpoints"),
    seed: int = 0,
    steps: int | None = None,
    batch_size: int | None = None,
    model_changes: Mapping[str, Any] | None = None,
    log_every: int = 100,
) -> Path:
    """Train one arm and return its checkpoint; continues from it if it is there.

    Args:
        arm: a name of `RECIPES`.
        documents: see `cofre.data.read_documents`; for text arms.
        tokenizer: name for transformers' AutoTokenizer, or an object with `encode` and `eos_token_id`.
        codes, labels: files of image codes and classes; for image arms.
        start: checkpoint that a post-training starts from.
        out: folder of the checkpoint.
        seed: of the weights; every process draws its own examples.
        steps, batch_size: other values than the recipe's.
        model_changes: other arguments of the model.
        log_every: steps between printed lines.

    Raises:
        ValueError: for an unknown arm or missing files, or as `cofre.training.train`.
    """
    accelerator = Accelerator()
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed * 1000 + accelerator.process_index)
    model, objective = build(arm, model_changes or {}, start, generator)
    recipe = RECIPES[arm]
    recipe = replace(recipe, steps=steps or recipe.steps, batch_size=batch_size or recipe.batch_size)
    device = accelerator.device
    model.to(device)
    if isinstance(objective, AdaptationObjective):
        objective.teacher = copy.deepcopy(objective.teacher).to(device)
    if arm.startswith("image"):
        if codes is None or labels is None:
            raise ValueError(f"{arm} needs --codes and --labels (.npy)")
        tokens, classes = load_codes(codes, labels, model.vocab_size, model.length)  # pyright: ignore
        source = array_source(tokens, classes, generator=generator, device=device)
    else:
        if isinstance(tokenizer, str):
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(tokenizer)
        length: int = model.length  # pyright: ignore[reportAssignmentType]
        source = text_source(documents, tokenizer, length, device, accelerator.process_index, accelerator.num_processes)

    path = checkpoint_path(out, arm, seed)
    log = pretraining.printer(accelerator, log_every)
    with accelerator.autocast():
        train(model, source, objective, recipe, accelerator=accelerator, checkpoint=path, log=log)
    accelerator.wait_for_everyone()
    return path


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: `python -m cofre.pretrain ARM …`, alone or under torchrun."""
    parser = pretraining.parser("cofre.pretrain", __doc__)
    parser.add_argument("arm", choices=list(RECIPES))
    parser.add_argument("--documents")
    parser.add_argument("--tokenizer", default="gpt2")
    parser.add_argument("--codes", type=Path)
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--start", type=Path)
    pretraining.call(pretrain, parser, arguments)


if __name__ == "__main__":
    main()
