"""The paper's own scale: loaders in the real format, and its training loop for two steps."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from cofre.pretrain import RECIPES, evaluated_weights, main, pretrain
from cofre.reproduce import paper
from cofre.reproduce.real_text import Words

TINY = {"hidden": 16, "heads": 2, "length": 8, "cond_dim": 8}


@pytest.fixture
def documents(tmp_path):
    file = tmp_path / "documents.jsonl"
    texts = ["the cat sat on the mat .", "a dog ate the cat , and the mat ."] * 20
    file.write_text("\n".join(json.dumps({"text": text}) for text in texts), encoding="utf-8")
    return str(file)


def run(arm, out, documents, start=None, **model):
    shape = TINY | {"vocab_size": 40} | model
    return pretrain(
        arm, documents=documents, tokenizer=Words(), start=start, out=out, steps=2, batch_size=4, model_changes=shape
    )


def test_every_text_arm_trains(tmp_path, documents):
    mdlm, fp = (run(arm, tmp_path, documents) for arm in ("mdlm", "fp"))
    for arm, start in (("consistency", fp), ("control", fp), ("converted", mdlm)):
        before, after = evaluated_weights(start), evaluated_weights(run(arm, tmp_path, documents, start))
        assert not torch.equal(before["embedding.weight"], after["embedding.weight"])
        assert all(value.isfinite().all() for value in after.values())
        if arm != "converted":
            assert before.keys() == after.keys()


def test_image_arms_train_on_code_arrays(tmp_path):
    codes, labels = tmp_path / "codes.npy", tmp_path / "labels.npy"
    np.save(codes, np.random.default_rng(0).integers(20, size=(12, 8), dtype=np.int16))
    np.save(labels, np.arange(12) % 10)
    for arm in ("image_plain", "image_fp"):
        path = pretrain(
            arm,
            codes=codes,
            labels=labels,
            out=tmp_path,
            steps=2,
            batch_size=4,
            model_changes=TINY | {"vocab_size": 20},
        )
        assert torch.load(path, weights_only=True)["step"] == 2
    with pytest.raises(ValueError, match="needs --codes and --labels"):
        pretrain("image_fp", out=tmp_path, steps=1, batch_size=4, model_changes=TINY | {"vocab_size": 20})


def test_experiment_continues_from_checkpoints(tmp_path, documents):
    """An arm whose checkpoint is finished is loaded, not trained again."""
    from cofre.reproduce.text_arms import TextConfig, chain_task, train_arms

    from claimlab import Run

    config = paper.experiments["text"].configs["smoke"]
    config = replace(config, checkpoints=tmp_path, validations=1)
    assert isinstance(config, TextConfig)
    first = train_arms(chain_task(config, Run("text", 0)), config, Run("text", 0))
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.pt")}
    again = train_arms(chain_task(config, Run("text", 0)), config, Run("text", 0))
    assert len(times) >= 9 and times == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.pt")}
    for name in ("mdlm", "fp", "control", "converted"):
        for a, b in zip(first[name].parameters(), again[name].parameters(), strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["consistency"], "consistency needs --start, the checkpoint of 'fp'"),
        (["image_fp", "--steps", "1"], "needs --codes and --labels"),
        (["mdlm", "--documents", "nowhere.jsonl", "--steps", "1"], None),
    ],
)
def test_command_line_errors_are_one_line(arguments, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cofre.pretrain.mdlm_small", lambda **shape: _tiny_stack())
    monkeypatch.setattr("cofre.pretrain.fp_maskgit", lambda **shape: _tiny_stack())
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", lambda name: Words())
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.startswith("error: ") and error.count("\n") == 1
    assert message is None or message in error


def _tiny_stack():
    from cofre import MaskedDenoiser

    return MaskedDenoiser(40, 8, 16, 2, 2)


def test_published_recipes():
    assert RECIPES["mdlm"].steps == 1_000_000 and RECIPES["mdlm"].batch_size == 512
    assert RECIPES["consistency"].steps == 30_000 and RECIPES["converted"].steps == 40_000
    assert all(recipe.ema_decay == 0.9999 for recipe in RECIPES.values())


def test_unknown_arm(tmp_path):
    with pytest.raises(ValueError, match="unknown arm 'gan'"):
        pretrain("gan", out=tmp_path)
