import time

import pytest

from claimlab import costs

torch = pytest.importorskip("torch")


def test_paired_ratio_sees_a_known_ratio():
    ratio = costs.paired_ratio(lambda: time.sleep(0.02), lambda: time.sleep(0.01), repeats=9)
    assert ratio.low <= ratio.value <= ratio.high
    assert 1.4 < ratio.value < 2.4
    with pytest.raises(ValueError, match="at least 3"):
        costs.paired_ratio(lambda: None, lambda: None, repeats=1)


def test_saved_bytes_counts_each_activation_once_and_no_parameter():
    weight = torch.ones(64, 64, requires_grad=True)

    def chain(depth):
        x = torch.ones(10, 64)
        for _ in range(depth):
            x = torch.tanh(x @ weight)  # saves x (for the weight's gradient) and tanh's output, the next x
        return x

    one = 10 * 64 * 4
    assert costs.saved_bytes(lambda: chain(3)) == 4 * one
    assert costs.saved_bytes(lambda: chain(6)) == 7 * one
    with torch.no_grad():
        assert costs.saved_bytes(lambda: chain(6)) == 0


def test_saved_bytes_counts_activations_and_no_views_of_weights():
    """exp keeps its output; two linear layers keep their inputs, however often their weights are used."""
    layer = torch.nn.Linear(8, 8, bias=False)
    x = torch.randn(5, 8)
    assert costs.saved_bytes(lambda: (1.0 * layer(x)).exp()) == 2 * 5 * 8 * 4  # the input and the exponentials
    assert costs.saved_bytes(lambda: layer(layer(x))) == 2 * 5 * 8 * 4  # the input and the first layer's output


def test_peak_memory_is_in_mebibytes():
    assert 20 < costs.peak_memory() < 200_000
