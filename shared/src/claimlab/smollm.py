"""A small pretrained language model, real and offline: SmolLM2-135M-Instruct from the `smollm2` asset."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from claimlab import assets
from claimlab.errors import ClaimlabError

if TYPE_CHECKING:
    import torch


def gguf_path() -> Path:
    """The asset's GGUF file, for llama.cpp and other readers."""
    return assets.path("smollm2")


@lru_cache(maxsize=1)
def load_causal_lm(name_or_path: str = "smollm2", dtype: torch.dtype | None = None) -> tuple[Any, Any]:
    """A causal language model in evaluation mode and its tokenizer, through transformers.

    Reading the GGUF takes 15-25 s; a process does it once (the last model is kept).

    Arguments:
        name_or_path: `smollm2` (the asset, dequantised), a local folder, or a hub name (which downloads).
        dtype: of the weights; float32 by default.

    Raises:
        ClaimlabError: the asset was not fetched, or the extra `claimlab[llm]` is not installed.
    """
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ClaimlabError(f"language models need `pip install 'claimlab[llm]'` ({error.name} is missing)") from None
    where: dict[str, Any] = {"pretrained_model_name_or_path": name_or_path}
    if name_or_path == "smollm2":
        file = gguf_path()
        where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=dtype or torch.float32)
    return model.eval(), tokenizer
