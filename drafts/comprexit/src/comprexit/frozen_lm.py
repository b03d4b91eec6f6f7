"""A frozen language model: what it says about a context, and how it reads a compressed one (section 3.4)."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import DynamicCache

KeyValues = tuple[tuple[Tensor, Tensor], ...]


@dataclass(frozen=True)
class Compressed:
    """What the language model reads in place of a batch of contexts.

    Attributes:
        mask: `[B, M]`, False for memory positions that are to be ignored.
        embeddings: `[B, M, H]` slots, read as input embeddings between BOS and the query; or
        key_values: keys and values `[B, heads, M, head width]` of every layer, read as a filled cache, and
        next_position: `[B]`, the rotary position at which the reader goes on after `key_values`.
    """

    mask: Bool[Tensor, "batch memory"]
    embeddings: Float[Tensor, "batch memory hidden"] | None = None
    key_values: KeyValues | None = None
    next_position: Int[Tensor, " batch"] | None = None

    def __getitem__(self, rows: Any) -> Compressed:
        """Some rows of the batch (a slice or an index tensor)."""
        return replace(
            self,
            mask=self.mask[rows],
            embeddings=None if self.embeddings is None else self.embeddings[rows],
            key_values=None if self.key_values is None else tuple((k[rows], v[rows]) for k, v in self.key_values),
            next_position=None if self.next_position is None else self.next_position[rows],
        )

    @property
    def scalars(self) -> int:
        """Numbers kept for one context."""
        if self.embeddings is not None:
            return self.embeddings[0].numel()
        return sum(k[0].numel() + v[0].numel() for k, v in self.key_values or ())


def check_context(input_ids: Tensor, attention_mask: Tensor | None) -> Bool[Tensor, "batch tokens"]:
    """The mask as booleans (all True if None).

    Raises:
        ValueError: for ids that are not `[B, T]`, a mask of another shape or with values other than 0 and 1, a row
            without a valid token, or padding between valid tokens.
    """
    if input_ids.ndim != 2 or input_ids.shape[1] == 0:
        raise ValueError(f"expected token ids of shape [batch, tokens], got {tuple(input_ids.shape)}")
    if attention_mask is None:
        return torch.ones_like(input_ids, dtype=torch.bool)
    if attention_mask.shape != input_ids.shape:
        raise ValueError(f"expected a mask of shape {tuple(input_ids.shape)}, got {tuple(attention_mask.shape)}")
    if not ((attention_mask == 0) | (attention_mask == 1)).all():
        raise ValueError(f"expected a mask of 0 and 1, got values up to {attention_mask.max().item()}")
    mask = attention_mask.bool()
    if not mask.any(-1).all():
        raise ValueError(
            f"every context needs a valid token; rows {(~mask.any(-1)).nonzero().flatten().tolist()} have none"
        )
    starts = mask.int().diff(dim=1, prepend=torch.zeros_like(mask[:, :1], dtype=torch.int)) == 1
    if (starts.sum(1) > 1).any():
        rows = (starts.sum(1) > 1).nonzero().flatten().tolist()
        raise ValueError(f"padding must be on one side of the tokens; rows {rows} have some in between")
    return mask


def rotary_positions(mask: Bool[Tensor, "batch tokens"]) -> Int[Tensor, "batch tokens"]:
    """Consecutive positions over valid tokens."""
    return (mask.long().cumsum(-1) - 1).clamp_min(0)


class _Prompt(NamedTuple):
    """Arguments of the model for [context, query], their mask, and the rotary position of the last token."""

    arguments: dict[str, Any]
    mask: Tensor
    last_position: Tensor


class FrozenLM:
    """A Hugging Face decoder whose weights never change.

    Arguments:
        model: any causal language model that takes `inputs_embeds`; it is frozen and put in evaluation mode.
        bos_token_id: token that opens every sequence; by default the model's BOS, else its EOS.

    Raises:
        ValueError: if the model does not take `inputs_embeds`, or there is no token to begin with.
    """

    def __init__(self, model: nn.Module, bos_token_id: int | None = None) -> None:
        parameters = inspect.signature(model.forward).parameters
        if "inputs_embeds" not in parameters or not hasattr(model, "get_input_embeddings"):
            raise ValueError(f"{type(model).__name__} does not take inputs_embeds, which compressors feed slots by")
        self.model: Any = model.requires_grad_(False).eval()
        self.config = self.model.config.get_text_config(decoder=True)
        # The argument is `past_key_values` in older releases of transformers and `cache` from 5.40 on.
        self._cache_argument = "cache" if "cache" in parameters else "past_key_values"
        special = (bos_token_id, self.config.bos_token_id, self.config.eos_token_id)
        first = next((token for token in special if token is not None), None)
        if first is None:
            raise ValueError("the model has neither BOS nor EOS; give bos_token_id")
        self.bos_token_id: int = first if isinstance(first, int) else first[0]

    @property
    def hidden_size(self) -> int:
        return self.config.hidden_size

    @property
    def num_states(self) -> int:
        """Hidden states for each token: the embedding output and every layer's."""
        return self.config.num_hidden_layers + 1

    @property
    def device(self) -> torch.device:
        return self.model.get_input_embeddings().weight.device

    @property
    def embedding_std(self) -> float:
        """Scale of the token embeddings."""
        return self.model.get_input_embeddings().weight.std().item()

    def embed(self, ids: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens hidden"]:
        return self.model.get_input_embeddings()(ids)

    @torch.no_grad()
    def hidden_states(
        self, ids: Int[Tensor, "batch tokens"], mask: Bool[Tensor, "batch tokens"]
    ) -> tuple[Float[Tensor, "batch tokens hidden"], ...]:
        """Hidden states of the embeddings and of every layer, without the vocabulary's logits.

        The model reads BOS before the context, as it was trained to; the states of BOS are dropped.
        """
        output = self.model.base_model(
            input_ids=torch.cat([torch.full_like(ids[:, :1], self.bos_token_id), ids], dim=1),
            **self._masked(torch.cat([torch.ones_like(mask[:, :1]), mask], dim=1)),
            output_hidden_states=True,
            use_cache=False,
        )
        return tuple(state[:, 1:] for state in output.hidden_states)

    def read(
        self, compressed: Compressed, query_ids: Int[Tensor, "batch query"]
    ) -> Float[Tensor, "batch query_and_one vocabulary"]:
        """Logits after the compressed context and after each query token: `query + 1` predictions.

        Queries are padded on the right, if at all: what follows a token does not change its logits.
        """
        prompt = self._prompt(compressed, query_ids, torch.ones_like(query_ids, dtype=torch.bool))
        return self._call(**prompt.arguments, logits_to_keep=query_ids.shape[1] + 1).logits

    @torch.no_grad()
    def generate(
        self,
        compressed: Compressed,
        query_ids: Int[Tensor, "batch query"],
        query_mask: Bool[Tensor, "batch query"] | None = None,
        max_new_tokens: int = 32,
        eos_token_id: int | Sequence[int] | None = None,
    ) -> Int[Tensor, "batch new"]:
        """Greedy continuation; rows that ended are filled with their end token.

        Arguments:
            query_mask: for queries of different lengths, padded on the left.
            eos_token_id: token(s) that end a row; the model's by default.

        Raises:
            ValueError: for fewer than one new token.
        """
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {max_new_tokens}")
        ends = self.model.generation_config.eos_token_id if eos_token_id is None else eos_token_id
        stop = torch.tensor([] if ends is None else [ends] if isinstance(ends, int) else list(ends), device=self.device)
        seen = torch.ones_like(query_ids, dtype=torch.bool) if query_mask is None else query_mask
        prompt = self._prompt(compressed, query_ids, seen)
        mask, position = prompt.mask, prompt.last_position
        output = self._call(**{**prompt.arguments, "use_cache": True}, logits_to_keep=1)
        tokens = [output.logits[:, -1].argmax(-1)]
        ended = torch.isin(tokens[0], stop)
        while len(tokens) < max_new_tokens and not ended.all():
            mask, position = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1), position + 1
            output = self._call(
                input_ids=tokens[-1][:, None],
                attention_mask=mask,
                position_ids=position[:, None],
                use_cache=True,
                cache=_cache_of(output),
            )
            tokens.append(torch.where(ended, tokens[-1], output.logits[:, -1].argmax(-1)))
            ended |= torch.isin(tokens[-1], stop)
        return torch.stack(tokens, dim=1)

    def _prompt(self, compressed: Compressed, query_ids: Tensor, seen: Tensor) -> _Prompt:
        bos = torch.full_like(query_ids[:, :1], self.bos_token_id)
        if compressed.embeddings is not None:
            # Ignored slots go to the left of BOS, so that the last position before the query is always a valid one.
            prefix = torch.cat([self.embed(bos), compressed.embeddings.to(self.model.dtype)], dim=1)
            prefix_mask, order = _left_padded(torch.cat([torch.ones_like(seen[:, :1]), compressed.mask], dim=1))
            if order is not None:
                prefix = prefix.gather(1, order[..., None].expand_as(prefix))
            mask = torch.cat([prefix_mask, seen], dim=1)
            positions = rotary_positions(mask)
            arguments = {"inputs_embeds": torch.cat([prefix, self.embed(query_ids)], dim=1), **self._masked(mask)}
            return _Prompt({"use_cache": False, **arguments}, mask, positions[:, -1])
        assert compressed.key_values is not None and compressed.next_position is not None
        new = torch.cat([torch.ones_like(seen[:, :1]), seen], dim=1)
        mask = torch.cat([compressed.mask, new], dim=1)
        positions = compressed.next_position[:, None] + rotary_positions(new)
        arguments = {
            "input_ids": torch.cat([bos, query_ids], dim=1),
            "attention_mask": None if bool(mask.all()) else mask.long(),
            "position_ids": positions,
            "use_cache": True,
            "cache": filled_cache(compressed.key_values),
        }
        return _Prompt(arguments, mask, positions[:, -1])

    def _call(self, *, cache: DynamicCache | None = None, **arguments: Any) -> Any:
        if cache is not None:
            arguments[self._cache_argument] = cache
        return self.model(**arguments)

    @staticmethod
    def _masked(mask: Tensor) -> dict[str, Tensor]:
        """Arguments for a padded batch; none for a full one, which lets attention take its fast causal path."""
        return {} if bool(mask.all()) else {"attention_mask": mask.long(), "position_ids": rotary_positions(mask)}


def filled_cache(key_values: KeyValues) -> DynamicCache:
    """A cache that holds these keys and values (rotated already) and can be appended to."""
    cache = DynamicCache()
    for layer, (keys, values) in enumerate(key_values):
        cache.update(keys, values, layer)
    return cache


def cached_key_values(output: Any) -> KeyValues:
    """Keys and values of every layer from a model's output."""
    return tuple((layer.keys, layer.values) for layer in _cache_of(output).layers)


def _cache_of(output: Any) -> Any:
    return output.cache if getattr(output, "cache", None) is not None else output.past_key_values


def _left_padded(mask: Tensor) -> tuple[Tensor, Tensor | None]:
    """The mask with its False entries moved to the left, and the order that does it (None: already so)."""
    if bool(mask.all()):
        return mask, None
    order = mask.int().argsort(dim=1, stable=True)
    return mask.gather(1, order), order
