"""The paper-scale path on tiny files in the real formats: pretraining, resuming from it, two processes."""

import os
import socket
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import torch.multiprocessing
from accelerate.state import AcceleratorState
from fprm import FPRMConfig, SolverConfig
from fprm.pretrain import TASKS, main, make_source, pretrain
from fprm.recipes import MAZE, STATE_TRACKING_A5, STATE_TRACKING_S5, SUDOKU
from fprm.reproduce import paper
from fprm.tasks import maze, sudoku

from claimlab import Run

SMALL = {"hidden_size": 16, "num_heads": 2, "ffn_multiple": 8}


@pytest.fixture(scope="module")
def sudoku_csv(tmp_path_factory):
    rng = np.random.default_rng(0)
    rows = []
    for blanks in (5, 30):
        puzzle, answer = sudoku.random_puzzle(blanks, rng)
        rows.append(("made", "".join(".123456789"[d] for d in puzzle), "".join(map(str, answer)), blanks))
    path = tmp_path_factory.mktemp("data") / "sudoku.csv"
    pd.DataFrame(rows, columns=["source", "question", "answer", "rating"]).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def maze_csv(tmp_path_factory):
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(4):
        question, answer = maze.random_maze(9, 2, rng)
        rows.append(("made", *(maze.draw(grid).replace("\n", "") for grid in (question, answer)), 1))
    path = tmp_path_factory.mktemp("data") / "maze.csv"
    pd.DataFrame(rows, columns=["source", "question", "answer", "rating"]).to_csv(path, index=False)
    return path


def test_published_recipes():
    """Table of hyper-parameters."""
    assert (SUDOKU.learning_rate, SUDOKU.weight_decay, SUDOKU.bptt, SUDOKU.max_segments) == (1e-3, 1e-3, 6, 12)
    assert (MAZE.learning_rate, MAZE.weight_decay, MAZE.bptt, MAZE.max_segments) == (1e-4, 1.0, 6, 24)
    assert SUDOKU.steps * SUDOKU.batch_size == MAZE.steps * MAZE.batch_size == 60_000 * 1000
    assert SUDOKU.warmup_steps == MAZE.warmup_steps == 2000
    assert SUDOKU.ema_decay == MAZE.ema_decay == 0.999
    assert (STATE_TRACKING_A5.bptt, STATE_TRACKING_A5.max_segments, STATE_TRACKING_A5.ema_decay) == (4, 128, None)
    assert (STATE_TRACKING_S5.solver.patience, STATE_TRACKING_S5.solver.gamma_train) == (10, 0.95)
    assert STATE_TRACKING_A5.steps == -(-50 * 2_000_000 // 1024)
    for shape, _ in TASKS.values():
        assert (shape.hidden_size, shape.num_heads, shape.num_layers, shape.expansion) == (512, 8, 2, 4.0)


@pytest.mark.parametrize("arm", ["fprm", "trm_conv_act", "hrm", "deep"])
def test_two_steps_of_sudoku_pretraining(sudoku_csv, tmp_path, arm):
    path = pretrain(
        "sudoku", arm=arm, train_file=sudoku_csv, out=tmp_path, steps=2, batch_size=2, model_changes=SMALL, log_every=1
    )
    content = torch.load(path, weights_only=True)
    assert content["step"] == 2
    assert set(content) == {"model", "optimizer", "scheduler", "ema", "step"}
    assert path.name == ("trm_conv-seed0.pt" if arm == "trm_conv_act" else f"{arm}-seed0.pt")


def test_pretraining_at_the_published_size_runs(sudoku_csv, tmp_path):
    path = pretrain("sudoku", train_file=sudoku_csv, out=tmp_path, steps=1, batch_size=1)
    weights = torch.load(path, weights_only=True)["model"]
    assert sum(w.numel() for name, w in weights.items() if "sublayers" in name) == 6_815_744


@pytest.mark.parametrize("task", ["maze", "A5", "S5"])
def test_two_steps_of_the_other_tasks(maze_csv, tmp_path, task):
    changes = SMALL | ({"seq_len": 81} if task == "maze" else {})
    path = pretrain(task, train_file=maze_csv, out=tmp_path, steps=2, batch_size=2, model_changes=changes)
    assert torch.load(path, weights_only=True)["step"] == 2


def test_the_experiment_evaluates_what_was_pretrained(sudoku_csv, tmp_path):
    """With a finished checkpoint there is nothing left to train."""
    config = paper.experiments["sudoku"].configs["paper"]
    solver = SolverConfig(max_iter=8)
    config = replace(
        config,
        model=FPRMConfig.sudoku(**SMALL),
        recipe=replace(SUDOKU, steps=2, batch_size=2, max_segments=2, solver=solver),
        arms=("fprm", "trm_conv", "trm", "shallow"),
        train_file=sudoku_csv,
        test_file=sudoku_csv,
        checkpoints=tmp_path,
    )
    for arm in config.arms:
        pretrain("sudoku", arm=arm, train_file=sudoku_csv, out=tmp_path, steps=2, batch_size=2, model_changes=SMALL)
    trained = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.pt")}
    run = Run("sudoku", 0)
    paper.experiments["sudoku"].function(config, run)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.pt")} == trained
    assert run.measures["iterations_fprm"].interval.value <= 12


def _one_process(rank: int, port: int, csv: Path, out: Path) -> None:
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE="2",
        LOCAL_WORLD_SIZE="2",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        ACCELERATE_USE_CPU="true",
    )
    AcceleratorState._reset_state(True)
    torch.set_num_threads(1)
    weights = {}
    original = torch.optim.AdamW.step

    def remember(self, *arguments, **options):
        result = original(self, *arguments, **options)
        weights["last"] = [p.detach().clone() for group in self.param_groups for p in group["params"]]
        return result

    torch.optim.AdamW.step = remember
    pretrain("sudoku", train_file=csv, out=out, steps=2, batch_size=4, model_changes=SMALL)
    torch.save(weights["last"], out / f"rank{rank}.weights")


def test_two_processes_stay_equal(sudoku_csv, tmp_path):
    """Data parallel over gloo: each process sees other puzzles, both end with the same weights."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.start_processes(
        _one_process, args=(port, sudoku_csv, tmp_path), nprocs=2, start_method="fork"
    )
    first, second = (torch.load(tmp_path / f"rank{rank}.weights", weights_only=True) for rank in (0, 1))
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)
    assert torch.load(tmp_path / "fprm-seed0.pt", weights_only=True)["step"] == 2


def test_bad_input(tmp_path, capsys, unchecked):
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="sudoku needs --train-file"):
        make_source("sudoku", None, rng)
    with pytest.raises(ValueError, match="unknown task 'chess'; there are sudoku, maze, A5, S5"):
        pretrain("chess")
    with pytest.raises(SystemExit) as ended:
        main(["maze", "--out", str(tmp_path)])
    assert ended.value.code == 2
    assert "error: maze needs --train-file" in capsys.readouterr().err
    config = paper.experiments["sudoku"].configs["paper"]
    with pytest.raises(ValueError, match="9x9 Sudoku needs train_file and test_file"):
        paper.experiments["sudoku"].function(config, Run("sudoku", 0))
    config = paper.experiments["maze"].configs["paper"]
    with pytest.raises(ValueError, match="30x30 mazes need train_file and test_file"):
        paper.experiments["maze"].function(config, Run("maze", 0))
