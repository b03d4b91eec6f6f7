"""Training, recall contexts, texts, MRQA files, metrics, and the paper-scale path on tiny files in the real formats."""

import gzip
import json

import numpy as np
import pytest
import torch
from comprexit import ICAE, CompressorConfig, ComprExIT, FullContext, MeanPool, MemoryConfig, RatioConfig
from comprexit.analysis import coverage_imbalance, layer_probe_accuracy, recovery_accuracy, redundancy
from comprexit.arms import ARMS, Shape, get_arm
from comprexit.data import mrqa, text
from comprexit.data.recall import RecallLMConfig, RecallTask, train_recall_lm
from comprexit.metrics import exact_match, token_f1
from comprexit.pretrain import main, run
from comprexit.training import NEXT_TOKEN, QUESTIONS, Batch, Recipe, _rate, cache_states, train

SMALL = CompressorConfig(window=8, gate_size=8, metric_size=8)
SHAPE = Shape(window=8, gate_size=8, metric_size=8, max_slots=64, lora_rank=4, beacon_window=8)


class Words:
    """A tokenizer of whole words over the tiny model's vocabulary."""

    eos_token_id = 2

    def __call__(self, text, add_special_tokens=False, verbose=False):
        return {"input_ids": [3 + sum(map(ord, word)) % 40 for word in text.split()]}

    def decode(self, ids, skip_special_tokens=False):
        return " ".join(str(int(i)) for i in ids)


@pytest.fixture
def batch(ids, query):
    return Batch(ids, None, query, query)


def test_training_lowers_the_loss(lm, batch):
    method = ComprExIT(lm, SMALL)
    before = method.loss(**vars(batch)).item()
    points = train(method, iter(lambda: batch, None), Recipe(30, 3e-3), evaluate=lambda: 7.0, every=10)
    assert method.loss(**vars(batch)).item() < 0.9 * before
    assert [p.step for p in points] == [10, 20, 30] and points[-1].score == 7.0
    assert points[0].seconds < points[-1].seconds and not method.training


def test_accumulation_is_the_larger_batch(lm, ids, query):
    """Two batches of one row, accumulated, are one step on both rows."""
    rows = [Batch(ids[i : i + 1], None, query[i : i + 1], query[i : i + 1]) for i in range(2)]
    both = Batch(ids[:2], None, query[:2], query[:2])
    ends = []
    for batches, accumulation in ((rows, 2), ([both], 1)):
        torch.manual_seed(3)
        method = MeanPool(lm)
        train(method, iter(batches), Recipe(1, 1e-3, accumulation=accumulation))
        ends.append(method.projector[0].weight.detach())
    torch.testing.assert_close(*ends, rtol=1e-3, atol=1e-5)


def test_cached_states_train_alike(lm, ids, query):
    states = cache_states(lm, ids, dtype=torch.float32, batch_size=2)
    assert states.shape == (3, 3, 20, 32)
    ends = []
    for cached in (None, states):
        torch.manual_seed(3)
        method = ComprExIT(lm, SMALL)
        train(method, iter(lambda c=cached: Batch(ids, None, query, query, c), None), Recipe(2, 1e-3))
        ends.append(method.projector[0].weight.detach())
    torch.testing.assert_close(*ends)


def test_the_learning_rate_rises_stays_and_falls():
    rates = [_rate(step, 5, 100) for step in range(101)]
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert set(rates[5:80]) == {1.0}
    assert rates[90] == pytest.approx(0.5) and rates[100] == 0.0


def test_nothing_to_train(lm, batch):
    with pytest.raises(ValueError, match="FullContext has nothing to train"):
        train(FullContext(lm), iter([batch]), Recipe(1))


def test_published_recipes():
    assert (NEXT_TOKEN.learning_rate, NEXT_TOKEN.warmup_share, NEXT_TOKEN.clip_norm, NEXT_TOKEN.accumulation) == (
        1e-4,
        0.05,
        20,
        32,
    )
    assert NEXT_TOKEN.steps == pytest.approx(1e9 / (16 * 32 * 4 * 512), rel=1e-3)
    assert (QUESTIONS.warmup_share, QUESTIONS.accumulation) == (0.0, 16)
    assert ARMS["icae"].published_learning_rate == ARMS["fivehundredx"].published_learning_rate == 3e-5
    shape = Shape()
    assert (shape.window, shape.gate_size, shape.metric_size, shape.projector_gain, shape.beacon_window) == (
        128,
        256,
        256,
        0.4,
        64,
    )
    assert (shape.lora_rank, shape.lora_alpha, shape.lora_dropout) == (128, 32, 0.05)


def test_recall_contexts():
    task = RecallTask(keys=6, values=5, fillers=3)
    made = task.sample(200, 4, 12, np.random.default_rng(0), asked=3)
    facts = made.context_ids.gather(1, made.positions)
    assert (facts >= task.first_fact).all() and ((made.context_ids >= task.first_fact).sum(1) == 4).all()
    pair = facts - task.first_fact
    assert torch.equal(1 + pair // 5, made.target_ids[:, :3])
    assert torch.equal(task.first_value + pair % 5, made.labels[:, 1:]) and (made.labels[:, 0] == -100).all()
    assert torch.equal(task.value_of(facts), pair % 5)
    assert all(len(set(row.tolist())) == 3 for row in made.target_ids[:, :3])
    assert made.context_ids.max() < task.vocab_size
    assert len(set(made.positions.flatten().tolist())) == 12
    with pytest.raises(ValueError, match="facts must be between 1 and 6, got 7"):
        task.sample(1, 7, 12, np.random.default_rng(0))
    with pytest.raises(ValueError, match="asked must be between 1 and the 2 facts, got 3"):
        task.sample(1, 2, 12, np.random.default_rng(0), asked=3)


def test_the_small_model_learns_to_look_up():
    task = RecallTask(keys=3, values=2, fillers=2)
    config = RecallLMConfig(hidden_size=32, layers=2, steps=150, batch_size=32, max_facts=2, max_length=5, noise=0.3)
    lm = train_recall_lm(task, config, np.random.default_rng(0))
    made = task.sample(200, 2, 5, np.random.default_rng(1))
    from comprexit import FrozenLM

    frozen = FrozenLM(lm)
    best = frozen.read(FullContext(frozen, RatioConfig()).compress(made.context_ids), made.target_ids)[:, :-1].argmax(
        -1
    )
    assert (best == made.labels)[:, 1:].float().mean() > 0.75  # chance is 1/2


def test_coverage_and_redundancy():
    even = torch.eye(4)[None]
    assert coverage_imbalance(even, torch.tensor([[0, 1, 2]])) == 0 and redundancy(even) == pytest.approx(0)
    same = torch.tensor([[[1.0, 0, 0, 0], [1, 0, 0, 0]]])
    assert redundancy(same) == pytest.approx(1)
    assert coverage_imbalance(same, torch.tensor([[0, 1]])) == pytest.approx(1)  # one gets 2, one 0: mean 1, sd 1
    with pytest.raises(ValueError, match="redundancy compares slots, got 1"):
        redundancy(even[:, :1])


def test_probes_find_what_is_there():
    rng = np.random.default_rng(0)
    made = RecallTask(4, 4, 2).sample(600, 2, 6, rng)
    facts = made.context_ids.gather(1, made.positions) - RecallTask(4, 4, 2).first_fact
    present = np.zeros((600, 16))
    np.put_along_axis(present, facts.numpy(), 1.0, axis=1)
    code = rng.standard_normal((16, 24))
    assert recovery_accuracy(present @ code, facts, 4, 4) > 0.95
    assert recovery_accuracy(rng.standard_normal((600, 24)), facts, 4, 4) < 0.4
    labels = facts[:, 0] % 4
    layers = torch.stack([torch.randn(600, 8), torch.nn.functional.one_hot(labels, 8).float()])
    noise, told = layer_probe_accuracy(layers, labels)
    assert told == 1.0 and noise < 0.45


def test_scores():
    """Published behaviour of SQuAD's script."""
    assert exact_match("The Beatles!", ["beatles"]) == 1 and exact_match("Beatles song", ["beatles"]) == 0
    assert token_f1("the Beatles song", ["Beatles"]) == pytest.approx(2 / 3)
    assert token_f1("a b c d", ["b d x", "c"]) == pytest.approx(2 * 2 / (3 + 3))
    assert token_f1("", [""]) == 1 and token_f1("", ["x"]) == 0
    with pytest.raises(ValueError, match="at least one reference"):
        exact_match("x", [])


@pytest.fixture
def mrqa_file(tmp_path):
    path = tmp_path / "small.jsonl.gz"
    records = [{"header": {"dataset": "small", "split": "train"}}]
    for k in range(4):
        qas = [{"qid": f"{k}", "question": "who wrote it?", "answers": ["Ada Lovelace", "Ada"]}]
        records.append(
            {"id": str(k), "context": "the first program was written by Ada Lovelace " * (k + 1), "qas": qas}
        )
    with gzip.open(path, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(record) + "\n" for record in records)
    return path


def test_mrqa(mrqa_file):
    questions = mrqa.read_mrqa(mrqa_file)
    assert len(questions) == 4 and questions[0].answers == ("Ada Lovelace", "Ada")
    assert len(mrqa.read_mrqa(mrqa_file, limit=2)) == 2
    made = mrqa.question_batch(Words(), questions[:2], max_context=100)
    assert made.context_mask.sum(1).tolist() == [8, 16] and made.context_mask[0, :8].sum() == 0
    labelled = made.labels != -100
    assert labelled.sum(1).tolist() == [3, 3]  # two words and the end token
    assert torch.equal(made.labels[labelled], made.target_ids[labelled]) and made.labels[0][labelled[0]][-1] == 2


def test_malformed_mrqa(tmp_path):
    path = tmp_path / "bad.jsonl.gz"
    with gzip.open(path, "wt") as out:
        out.write('{"header": {}}\n{"context": "x"}\n')
    with pytest.raises(ValueError, match=r"line 2: not an MRQA record \(KeyError\('qas'\)\)"):
        mrqa.read_mrqa(path)
    with gzip.open(path, "wt") as out:
        out.write('{"header": {}}\n')
    with pytest.raises(ValueError, match="holds no questions"):
        mrqa.read_mrqa(path)


def test_windows_of_text():
    ids = text.windows(Words(), ["a b c d e", "f g", "h i j"], 2)
    assert len(ids) == 4
    rng = np.random.default_rng(0)
    seen = next(text.continuation_batches(ids, 1, 4, rng)).context_ids
    assert torch.equal(seen.sort(0).values, ids[:, :1].sort(0).values)
    with pytest.raises(ValueError, match="no text has 9 tokens"):
        text.windows(Words(), ["a b"], 9)
    with pytest.raises(ValueError, match="context must be between 1 and 1 of a window's tokens, got 2"):
        next(text.continuation_batches(ids, 2, 1, rng))
    assert sum(map(len, text.python_documentation())) > 300_000


@pytest.fixture
def pajama(tmp_path):
    from datasets import Dataset

    Dataset.from_dict({"text": [f"word{k} is here " * 60 for k in range(6)]}).save_to_disk(str(tmp_path / "pajama"))
    return tmp_path / "pajama"


@pytest.mark.parametrize("arm", ["comprexit", "icae", "fivehundredx", "beacon", "mean_pool"])
def test_both_phases_and_evaluation(lm, pajama, mrqa_file, tmp_path, arm):
    """Two steps of next-token prediction, two of questions from there, then exact match and F1."""
    options = dict(model=lm.model, tokenizer=Words(), arm=arm, shape=SHAPE, context=32, batch_size=2, steps=2)
    assert np.isfinite(run("ntp", data=[pajama], out=tmp_path / "ntp", **options)["loss"])
    assert np.isfinite(run("sft", data=[mrqa_file], start=tmp_path / "ntp", out=tmp_path / "sft", **options)["loss"])
    result = run("eval", data=[mrqa_file], start=tmp_path / "sft", **options)
    assert 0 <= result["exact_match"] <= result["f1"] <= 1 and result["questions"] == 4


def test_bad_paper_scale_input(capsys, lm, pajama):
    with pytest.raises(ValueError, match="phase must be ntp, sft or eval, got 'play'"):
        run("play")
    with pytest.raises(ValueError, match="unknown method 'best'; there are full"):
        get_arm("best")
    with pytest.raises(SystemExit) as ended:
        main(["sft"])
    assert ended.value.code == 2 and "error: sft needs data" in capsys.readouterr().err
    assert len(list(text.read_dataset(pajama))) == 6


def test_icae_trains(lm, batch):
    method = ICAE(lm, MemoryConfig(lora_rank=4, max_slots=8, memory_init="scaled"))
    points = train(method, iter(lambda: batch, None), Recipe(20, 3e-3), every=10)
    assert points[-1].loss < points[0].loss
