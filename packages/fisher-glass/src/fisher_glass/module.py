"""Scores and penultimate features of any torch classifier."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fisher_glass.fisher import require_finite


def module_scores(
    model: nn.Module,
    inputs: Tensor,
    parameters: Sequence[str] | None = None,
    samples: int = 1,
    generator: torch.Generator | None = None,
) -> Float[np.ndarray, "m d"]:
    """Scores ``grad_theta log p_theta(y | x)`` with ``y`` drawn from the model, one row a sample and draw.

    Args:
        model: returns logits, (n,) or (n, 1) of one class against the other, or (n, c >= 2); put it in eval mode first.
        inputs: n inputs, batch first.
        parameters: names of the parameters that make up theta (a last layer: ``["head.weight", "head.bias"]``);
            default: all.
        samples: draws of y for each input.
        generator: randomness of the draws.

    Returns:
        (n * samples, d), all draws of one input together; their mean outer product estimates the true Fisher.

    Raises:
        ValueError: unknown parameter names, samples < 1, a model in training mode, scores that are not finite.
    """
    named = dict(model.named_parameters())
    chosen = list(named) if parameters is None else list(parameters)
    unknown = [name for name in chosen if name not in named]
    if unknown or not chosen:
        raise ValueError(f"parameters must name some of {', '.join(named)}; got {', '.join(unknown) or 'none'}")
    if samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    if model.training:
        raise ValueError(
            "the model is in training mode: call model.eval() first, or dropout and batch norm change the scores"
        )
    theta = {name: named[name].detach() for name in chosen}
    rest = {name: value.detach() for name, value in named.items() if name not in theta} | dict(model.named_buffers())

    def log_likelihood(theta: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        logits = functional_call(model, {**theta, **rest}, (x[None],)).reshape(1, -1)[0]
        padded = torch.cat([torch.zeros_like(logits), logits]) if logits.numel() == 1 else logits
        return torch.log_softmax(padded, dim=0).gather(0, y[None])[0]

    with torch.no_grad():
        logits = model(inputs).reshape(len(inputs), -1)
        padded = torch.cat([torch.zeros_like(logits), logits], dim=1) if logits.shape[1] == 1 else logits
        labels = torch.multinomial(padded.softmax(dim=1), samples, replacement=True, generator=generator)
    per_draw = vmap(grad(log_likelihood), in_dims=(None, None, 0))
    scores = vmap(per_draw, in_dims=(None, 0, 0))(theta, inputs, labels)
    rows = torch.cat([scores[name].reshape(labels.numel(), -1) for name in chosen], dim=1)
    out = rows.double().cpu().numpy()
    require_finite("scores", out)
    return out


def penultimate_features(
    model: nn.Module, layer: str, inputs: Tensor, batch_size: int = 256
) -> tuple[Float[np.ndarray, "n q"], Float[np.ndarray, "n ..."]]:
    """What the last linear layer sees, and the probabilities that the model gives: all an audit of the head needs.

    Args:
        model: a classifier in eval mode (logits (n,), (n, 1) or (n, c)).
        layer: name of its last ``nn.Linear`` (``"fc"`` for torchvision's ResNet).
        inputs: n inputs, batch first.
        batch_size: inputs at a time.

    Returns:
        Features (n, q) without constant, and p(y = 1) (n,) for one logit or class probabilities (n, c).

    Raises:
        ValueError: no such layer, or it is not linear; a model in training mode.
    """
    modules = dict(model.named_modules())
    if not isinstance(modules.get(layer), nn.Linear):
        linear = ", ".join(name for name, module in modules.items() if isinstance(module, nn.Linear))
        raise ValueError(f"layer must name a linear layer ({linear or 'this model has none'}), got {layer!r}")
    if model.training:
        raise ValueError("the model is in training mode: call model.eval() first")
    seen: list[Tensor] = []
    handle = modules[layer].register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    logits = []
    try:
        with torch.no_grad():
            for batch in inputs.split(batch_size):
                logits.append(model(batch).reshape(len(batch), -1))
    finally:
        handle.remove()
    z, out = torch.cat(seen).double(), torch.cat(logits).double()
    probabilities = out[:, 0].sigmoid() if out.shape[1] == 1 else out.softmax(dim=1)
    return z.cpu().numpy(), probabilities.cpu().numpy()
