"""What all compressors share: the loss, reading, generation, long contexts, checkpoints."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from jaxtyping import Bool, Float, Int
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from claimlab.smollm import load_causal_lm

from .frozen_lm import Compressed, FrozenLM, check_context

Method = TypeVar("Method", bound="Compressor")

IGNORE = -100  # label of target tokens that are not to be predicted


class Compressor(nn.Module, ABC):
    """Turns contexts into `Compressed` ones that the frozen language model reads.

    Only the compressor's own weights are its parameters; the language model is held outside the module tree, on
    whose device the compressor is made.

    Arguments:
        lm: a Hugging Face decoder, or a `FrozenLM` made of one.
        config: a dataclass of settings, kept with the weights.
    """

    config_class: ClassVar[type]

    def __init__(self, lm: nn.Module | FrozenLM, config: Any) -> None:
        super().__init__()
        self.lm = lm if isinstance(lm, FrozenLM) else FrozenLM(lm)
        self.config = config

    @abstractmethod
    def _compress(self, ids: Tensor, mask: Tensor, states: Any) -> Compressed:
        """The method itself, on a checked batch; `states` are the frozen model's hidden states, if cached."""

    def compress(
        self,
        input_ids: Int[Tensor, "batch tokens"],
        attention_mask: Tensor | None = None,
        states: Sequence[Tensor] | Tensor | None = None,
    ) -> Compressed:
        """Compress contexts, `ceil(T / ratio)` memory positions each.

        Arguments:
            input_ids: contexts without BOS, padded on the left if their lengths differ.
            attention_mask: `[B, T]` of 0 and 1.
            states: hidden states of these contexts from `FrozenLM.hidden_states` or `training.cache_states`; saves
                the pass through the frozen model. Methods that train a copy of it have no use for them.

        Raises:
            ValueError: as `check_context`, or for a wrong number of states.
        """
        return self._compress(input_ids, check_context(input_ids, attention_mask), states)

    def compress_long(
        self,
        input_ids: Int[Tensor, "batch tokens"],
        attention_mask: Tensor | None = None,
        segment: int = 512,
    ) -> Compressed:
        """Compress segments of a long context independently and concatenate the slots (section 3.4, "map-reduce").

        Raises:
            ValueError: as `compress`, for a segment below 1, or if the memory is a cache, whose positions would clash.
        """
        if segment < 1:
            raise ValueError(f"segment must be at least 1, got {segment}")
        mask = check_context(input_ids, attention_mask)
        batch, tokens = input_ids.shape
        missing = -tokens % segment
        ids = F.pad(input_ids, (missing, 0)).reshape(-1, segment)
        part_mask = F.pad(mask, (missing, 0)).reshape(-1, segment)
        parts = self._compress(ids, part_mask, None)
        if parts.embeddings is None:
            raise ValueError(f"{type(self).__name__} keeps a cache; segments of it cannot be joined")
        kept = parts.mask & part_mask.any(-1, keepdim=True)
        return Compressed(kept.reshape(batch, -1), parts.embeddings.reshape(batch, -1, parts.embeddings.shape[-1]))

    def loss(
        self,
        context_ids: Int[Tensor, "batch tokens"],
        context_mask: Tensor | None,
        target_ids: Int[Tensor, "batch target"],
        labels: Int[Tensor, "batch target"],
        states: Sequence[Tensor] | Tensor | None = None,
    ) -> Float[Tensor, ""]:
        """Mean cross-entropy of the labelled target tokens, the first predicted from the last slot (section 3.5).

        Arguments:
            target_ids: what follows the context: a continuation, or question and answer; padded on the right.
            labels: `target_ids` where the token is to be predicted, -100 elsewhere.

        Raises:
            ValueError: as `compress`, or for labels of another shape.
        """
        nll = self.token_nll(context_ids, context_mask, target_ids, labels, states)
        return nll.sum() / (labels != IGNORE).sum().clamp_min(1)

    def token_nll(
        self,
        context_ids: Int[Tensor, "batch tokens"],
        context_mask: Tensor | None,
        target_ids: Int[Tensor, "batch target"],
        labels: Int[Tensor, "batch target"],
        states: Sequence[Tensor] | Tensor | None = None,
    ) -> Float[Tensor, "batch target"]:
        """Negative log-likelihood of each target token in nats, 0 where the label is -100; arguments as `loss`."""
        if labels.shape != target_ids.shape:
            raise ValueError(f"expected labels of shape {tuple(target_ids.shape)}, got {tuple(labels.shape)}")
        logits = self.lm.read(self.compress(context_ids, context_mask, states), target_ids)[:, :-1]
        return F.cross_entropy(logits.float().transpose(1, 2), labels, ignore_index=IGNORE, reduction="none")

    def generate(
        self,
        compressed: Compressed,
        query_ids: Int[Tensor, "batch query"],
        query_mask: Bool[Tensor, "batch query"] | None = None,
        max_new_tokens: int = 32,
        eos_token_id: int | Sequence[int] | None = None,
    ) -> Int[Tensor, "batch new"]:
        """Greedy answer of the frozen model to `query_ids` after the compressed context; see `FrozenLM.generate`."""
        return self.lm.generate(compressed, query_ids, query_mask, max_new_tokens, eos_token_id)

    def trainable(self) -> dict[str, nn.Parameter]:
        """The parameters that training changes, by name."""
        return {name: p for name, p in self.named_parameters() if p.requires_grad}

    @property
    def num_trainable(self) -> int:
        return sum(p.numel() for p in self.trainable().values())

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `compressor.json` and `compressor.safetensors`: the small modules, never the language model."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        described = {
            "method": type(self).__name__,
            "config": asdict(self.config),
            "hidden_size": self.lm.hidden_size,
            "num_states": self.lm.num_states,
            "language_model": self.lm.config.name_or_path,
        }
        (folder / "compressor.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
        weights = {name: p.detach().contiguous() for name, p in self.trainable().items()}
        save_file(weights, folder / "compressor.safetensors")

    @classmethod
    def from_pretrained(cls: type[Method], folder: str | Path, lm: nn.Module | FrozenLM | str = "smollm2") -> Method:
        """The compressor that `save_pretrained` wrote, for the same language model.

        Arguments:
            lm: the model, or its name: `smollm2`, a local folder, or a hub name (which downloads).

        Raises:
            ValueError: if it was trained by another method, or for a model of another width or depth.
            FileNotFoundError: if the folder holds no compressor.
        """
        folder = Path(folder)
        described = json.loads((folder / "compressor.json").read_text(encoding="utf-8"))
        if described["method"] != cls.__name__:
            raise ValueError(f"{folder} holds a {described['method']}, expected a {cls.__name__}")
        model = load_causal_lm(lm)[0] if isinstance(lm, str) else lm
        frozen = model if isinstance(model, FrozenLM) else FrozenLM(model)
        expected = (described["hidden_size"], described["num_states"])
        if expected != (frozen.hidden_size, frozen.num_states):
            raise ValueError(
                f"{folder} was trained for hidden size {expected[0]} and {expected[1]} states, "
                f"the model has {frozen.hidden_size} and {frozen.num_states}"
            )
        compressor = cls(frozen, cls.config_class(**described["config"]))
        weights = load_file(folder / "compressor.safetensors")
        missing = compressor.trainable().keys() ^ weights.keys()
        if missing:
            raise ValueError(f"{folder} does not match its configuration: {', '.join(sorted(missing)[:3])}")
        compressor.load_state_dict(weights, strict=False)
        return compressor.to(frozen.device)
