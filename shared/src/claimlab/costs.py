"""What performance claims need: paired timing, bytes kept for the backward pass, peak memory."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from claimlab import stats
from claimlab.stats import Interval


def timed(function: Callable[[], Any]) -> float:
    """Wall time of one call, in seconds."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def paired_ratio(ours: Callable[[], Any], other: Callable[[], Any], *, repeats: int = 15, warmup: int = 1) -> Interval:
    """Median over pairs of time(ours) / time(other), with its bootstrap interval.

    The two are called in turn, first one then the other leading, so that a drift of the machine's speed meets both.
    """
    if repeats < 3:
        raise ValueError(f"expected at least 3 repeats, got {repeats}")
    for _ in range(warmup):
        ours()
        other()
    ratios = []
    collecting = gc.isenabled()
    gc.disable()
    try:
        for repeat in range(repeats):
            if repeat % 2:
                b = timed(other)
                a = timed(ours)
            else:
                a = timed(ours)
                b = timed(other)
            ratios.append(a / b)
    finally:
        if collecting:
            gc.enable()
    return stats.bootstrap(ratios, np.median)


def saved_bytes(function: Callable[[], Any]) -> int:
    """Bytes of the tensors that autograd keeps for the backward pass while `function` runs.

    Each storage counts once, however many graph nodes hold it. Parameters and other leaves do not count, nor do views
    of them, such as the transposed matrix that a linear layer keeps.
    """
    import torch

    storages: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        source = tensor if tensor._base is None else tensor._base
        if not (source.is_leaf and source.requires_grad):
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage  # kept, so that no address is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function()
    del result
    return sum(storage.nbytes() for storage in storages.values())


def peak_memory() -> float:
    """High-water mark of this process's resident memory, in MiB (POSIX systems)."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
