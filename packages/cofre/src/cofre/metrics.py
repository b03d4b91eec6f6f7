"""Quality of samples (section 3.7): generative perplexity, entropy and its collapse, Fréchet distance, inception
score."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Integer
from scipy import linalg
from torch import Tensor

DEGENERATE_SHARE = 0.85


def generative_perplexity(nll: Float[Tensor, "samples tokens"]) -> float:
    """`exp` of the mean over samples of the mean over tokens of `-log p_reference` (nats)."""
    return float(nll.double().mean(1).mean().exp())


def unigram_entropy(tokens: Integer[Tensor, "samples length"], symbols: int) -> Float[Tensor, " samples"]:
    """Entropy (nats) of each sample's own token histogram.

    Raises:
        ValueError: for tokens outside 0 … symbols - 1.
    """
    if int(tokens.min()) < 0 or int(tokens.max()) >= symbols:
        raise ValueError(f"tokens must lie in 0 … {symbols - 1}, got {int(tokens.min())} … {int(tokens.max())}")
    ones = torch.ones(tokens.shape, dtype=torch.float64, device=tokens.device)
    counts = torch.zeros(len(tokens), symbols, dtype=torch.float64, device=tokens.device).scatter_add_(1, tokens, ones)
    return torch.special.entr(counts / tokens.shape[1]).sum(1)


def is_degenerate(entropy: float, data_entropy: float, share: float = DEGENERATE_SHARE) -> bool:
    """Whether samples are so uniform that their generative perplexity means nothing: entropy below a share of the
    data's."""
    return entropy < share * data_entropy


def frechet_distance(x: Float[np.ndarray, "samples features"], y: Float[np.ndarray, "others features"]) -> float:
    """Fréchet distance of Gaussians fitted to two sets of features (FID with the features of one's choice).

    Raises:
        ValueError: for different numbers of features, or fewer than two samples.
    """
    if x.shape[1] != y.shape[1] or min(len(x), len(y)) < 2:
        raise ValueError(f"expected two or more rows of equal width, got {x.shape} and {y.shape}")
    return frechet_from_moments(x.mean(0), np.cov(x.T), y.mean(0), np.cov(y.T))


def frechet_from_moments(
    mean1: Float[np.ndarray, " k"],
    covariance1: Float[np.ndarray, ...],
    mean2: Float[np.ndarray, " k"],
    covariance2: Float[np.ndarray, ...],
) -> float:
    """`|m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2))`."""
    c1, c2 = np.atleast_2d(covariance1), np.atleast_2d(covariance2)
    # tr (C1 C2)^(1/2) = tr (C1^(1/2) C2 C1^(1/2))^(1/2), whose eigenvalues are real and not negative.
    root = _root(c1)
    cross = np.sqrt(np.clip(linalg.eigvalsh(root @ c2 @ root), 0, None)).sum()
    return float(np.square(mean1 - mean2).sum() + np.trace(c1) + np.trace(c2) - 2 * cross)


def _root(covariance: np.ndarray) -> np.ndarray:
    values, vectors = linalg.eigh(covariance)
    return (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T


def inception_score(probabilities: Float[np.ndarray, "samples classes"]) -> float:
    """`exp` of the mean over samples of `KL(p(class | sample) || p(class))`.

    Raises:
        ValueError: if a row is no distribution.
    """
    low, sums = probabilities.min(), probabilities.sum(1)
    if not (low >= 0 and np.allclose(sums, 1, atol=1e-4)):
        raise ValueError(f"each row must be a distribution, got a least entry of {low:.3g}, sums to {sums.max():.6g}")
    marginal = probabilities.mean(0, keepdims=True)
    logs = np.log(np.clip(probabilities, 1e-300, None)) - np.log(np.clip(marginal, 1e-300, None))
    return float(np.exp((probabilities * logs).sum(1).mean()))
