import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from cofre import MarkovText
from cofre.data import (
    array_source,
    bundled_documents,
    compact_vocabulary,
    digit_tokens,
    load_codes,
    pack,
    read_documents,
    read_text,
)
from cofre.judge import CausalJudge
from cofre.markov import ALPHABET, decode_text, encode_text
from sklearn.datasets import load_digits


@pytest.fixture(scope="module")
def chain():
    return MarkovText.fit(read_text())


def test_text_becomes_letters_and_single_spaces():
    assert decode_text(torch.from_numpy(encode_text("  A cat,\n 2 DOGS!"))) == "a cat dogs"


def test_chain_of_a_hand_made_text():
    chain = MarkovText.fit("abababab", order=1, smoothing=1e-9)
    assert float(chain.transitions[0, 1]) == pytest.approx(1.0) and float(chain.transitions[1, 0]) == pytest.approx(1.0)
    assert chain.entropy_rate() == pytest.approx(0.0, abs=1e-6)
    torch.testing.assert_close(
        chain.nll(torch.tensor([[0, 1, 0]]))[0, 1:], torch.zeros(2, dtype=torch.float64), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("order", [1, 2])
def test_stationary_law_solves_its_equation(order):
    """The left eigenvector of the whole transition matrix between contexts, by dense linear algebra."""
    chain = MarkovText.fit(read_text()[:50_000], order=order, smoothing=0.01)
    contexts, symbols = chain.transitions.shape
    matrix = np.zeros((contexts, contexts))
    for context in range(contexts):
        matrix[context, (context * symbols + np.arange(symbols)) % contexts] += chain.transitions[context].numpy()
    np.testing.assert_allclose(chain.stationary.numpy() @ matrix, chain.stationary.numpy(), atol=1e-12)
    entropy = -(chain.stationary[:, None] * chain.transitions * chain.transitions.log()).sum()
    assert chain.entropy_rate() == pytest.approx(float(entropy))


def test_probabilities_of_all_short_texts_sum_to_one():
    chain = MarkovText.fit("abc cab bac acb", order=2, smoothing=0.1)
    symbols = torch.arange(len(ALPHABET))
    texts = torch.cartesian_prod(symbols, symbols, symbols)
    assert float((-chain.nll(texts).sum(1)).exp().sum()) == pytest.approx(1.0)
    assert float((-chain.nll(texts[:, :1].unique(dim=0)).sum(1)).exp().sum()) == pytest.approx(1.0)


def test_nll_of_sampled_text_is_the_entropy(chain, generator):
    tokens = chain.sample(3000, 32, generator)
    nll = chain.nll(tokens).mean(1)
    error = float(nll.std()) / math.sqrt(len(nll))
    assert float(nll.mean()) == pytest.approx(chain.entropy_per_token(32), abs=4 * error)
    assert chain.entropy_per_token(10_000) == pytest.approx(chain.entropy_rate(), rel=1e-3)
    shuffled = tokens[:, torch.randperm(32)]
    assert float(chain.nll(shuffled).mean()) > chain.entropy_per_token(32) + 1


def test_sampled_pairs_follow_the_stationary_law(chain, generator):
    tokens = chain.sample(20_000, 6, generator)
    pairs = torch.bincount(tokens[:, -2] * 27 + tokens[:, -1], minlength=27**2) / 20_000
    torch.testing.assert_close(pairs.double(), chain.stationary, atol=0.006, rtol=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MarkovText.fit("ab", order=2), "needs a longer text than 2"),
        (lambda: MarkovText.fit("abcd", order=0), "got 0 and 0.001"),
        (lambda: MarkovText.fit("abcd", smoothing=0.0), "smoothing > 0"),
        (lambda: MarkovText.fit("abcd").sample(2, 1), "length >= order = 2, got 2 and 1"),
        (lambda: MarkovText.fit("abcd").nll(torch.tensor([[27]])), "symbols must lie in 0 … 26, got 27"),
        (lambda: MarkovText.fit("abcd").entropy_per_token(1), "at least 2, got 1"),
    ],
)
def test_bad_chains(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_bundled_text_is_real_english():
    documents = bundled_documents()
    text = " ".join(documents)
    assert len(text) > 200_000 and len(documents) > 30
    words = text.lower().split()
    assert words.count("the") > 0.03 * len(words)


def test_packing_keeps_order_and_marks_ends():
    rows = list(pack([[1, 2, 3], [4], [5, 6, 7, 8]], length=4, end=0))
    assert [row.tolist() for row in rows] == [[1, 2, 3, 0], [4, 0, 5, 6]]
    with pytest.raises(ValueError, match="length must be at least 1"):
        list(pack([[1]], 0, 0))


def test_documents_of_every_format(tmp_path):
    texts = ["first text", "second\ntext"]
    lines = tmp_path / "a.jsonl"
    lines.write_text("\n".join(json.dumps({"text": text}) for text in texts), encoding="utf-8")
    pd.DataFrame({"text": texts}).to_json(tmp_path / "unused.json")
    plain = tmp_path / "a.txt"
    plain.write_text("first text\n\nsecond\ntext", encoding="utf-8")
    assert list(read_documents(lines)) == texts
    assert list(read_documents(str(plain))) == texts
    assert next(read_documents()) == bundled_documents()[0]
    with pytest.raises(ValueError, match="line 1: no field 'body', it has text"):
        list(read_documents(lines, column="body"))
    with pytest.raises(FileNotFoundError):
        list(read_documents(tmp_path / "none.txt"))


def test_documents_in_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    file = tmp_path / "a.parquet"
    pd.DataFrame({"text": ["one", "two"]}).to_parquet(file)
    assert list(read_documents(file)) == ["one", "two"]
    with pytest.raises(ValueError, match="no column 'body', it has text"):
        list(read_documents(file, column="body"))


def test_compact_vocabulary_leads_back():
    tokens = torch.tensor([[900, 3], [17, 900]])
    renumbered, table = compact_vocabulary(tokens)
    assert renumbered.tolist() == [[2, 0], [1, 2]] and torch.equal(table[renumbered], tokens)


def test_digits_are_the_real_ones():
    tokens, digits = digit_tokens(8)
    pixels, labels = load_digits(return_X_y=True)
    assert tokens.shape == (1797, 64) and int(tokens.min()) == 0 and int(tokens.max()) == 7
    assert (digits.numpy() == labels).all()
    assert np.corrcoef(tokens.flatten(), pixels.flatten())[0, 1] > 0.99
    with pytest.raises(ValueError, match="levels must lie in 2 … 17, got 1"):
        digit_tokens(1)


def test_code_arrays(tmp_path):
    codes, labels = tmp_path / "codes.npy", tmp_path / "labels.npy"
    np.save(codes, np.arange(8, dtype=np.int16).reshape(2, 4))
    np.save(labels, np.array([3, 1]))
    tokens, classes = load_codes(codes, labels, vocab_size=8, length=4)
    assert tokens.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]] and classes.tolist() == [3, 1]
    with pytest.raises(ValueError, match=r"codes must lie in 0 … 6, got 0 … 7"):
        load_codes(codes, labels, vocab_size=7, length=4)
    with pytest.raises(ValueError, match=r"must hold integers \(N, 256\), got int16 \(2, 4\)"):
        load_codes(codes, labels)
    np.save(labels, np.array([3.0, 1.0]))
    with pytest.raises(ValueError, match="must hold 2 integers, got float64"):
        load_codes(codes, labels, vocab_size=8, length=4)


def test_random_batches_keep_classes_with_their_rows(unchecked, generator):
    rows = torch.arange(10)[:, None].expand(-1, 3)
    batch = array_source(rows, torch.arange(10) * 2, generator=generator)(50)
    assert torch.equal(batch.tokens[:, 0] * 2, batch.classes) and len(batch.tokens.unique()) > 5
    with pytest.raises(ValueError, match="expected rows with a class each"):
        array_source(rows, torch.arange(9))


def test_judge_scores_the_next_token():
    """A model that always predicts the same law: the score is its own -log, whatever came before."""

    class Law(torch.nn.Module):
        device = torch.device("cpu")

        def forward(self, ids):
            logits = torch.tensor([0.5, 0.25, 0.25]).log().expand(*ids.shape, 3)
            return type("Output", (), {"logits": logits})()

    judge = CausalJudge(Law(), table=torch.tensor([2, 0]), batch_size=2)  # symbol 0 is the judge's 2, symbol 1 its 0
    nll = judge.nll(torch.tensor([[0, 1, 0], [1, 1, 1], [0, 0, 1]]))
    expected = -torch.log(torch.tensor([[0.5, 0.25], [0.5, 0.5], [0.25, 0.5]]))
    torch.testing.assert_close(nll, expected)
    with pytest.raises(ValueError, match="at least two tokens"):
        judge.nll(torch.tensor([[1]]))
