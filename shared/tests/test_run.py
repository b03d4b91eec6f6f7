import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from claimlab import Interval, Paper, Run, plotting


def test_the_same_seed_gives_the_same_draws_and_experiments_differ():
    assert Run("a", 3).rng.random() == Run("a", 3).rng.random()
    assert len({Run("a", 3).rng.random(), Run("b", 3).rng.random(), Run("a", 4).rng.random()}) == 3


def test_measures_take_numbers_bools_and_intervals():
    run = Run("a", 0)
    run.measure("x", np.float32(2))
    run.measure("y", Interval(1, 0, 2))
    run.measure("z", True, timing=True)
    assert run.measures["y"].interval == (1, 0, 2)
    assert run.measures["z"].interval.value == 1.0 and run.measures["z"].timing
    assert np.isnan(run.measures["x"].interval.low)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Bad Name", {}, "snake_case"),
        ("taken", {}, "already taken"),
        ("x", {"low": 1.0}, "both bounds"),
        ("x", {"low": 1.0, "high": 0.0}, "low <= high"),
    ],
)
def test_bad_measures_are_refused(name, options, message):
    run = Run("a", 0)
    run.measure("taken", 1)
    with pytest.raises(ValueError, match=message):
        run.measure(name, 1.0, **options)


def test_tables_and_figures_are_kept_once_and_figures_closed():
    run = Run("a", 0)
    run.table("t", pd.DataFrame({"a": [1]}))
    with pytest.raises(ValueError, match="already kept"):
        run.table("t", pd.DataFrame())
    figure, _ = plotting.subplots()
    run.figure("f", figure)
    assert run.figures["f"]["png"].startswith(b"\x89PNG") and not plt.get_fignums()
    with pytest.raises(ValueError, match="a name of letters"):
        run.table("a/b", pd.DataFrame())


def test_progress_yields_everything():
    assert list(Run("a", 0).progress(iter(range(5)), "x")) == [0, 1, 2, 3, 4]


def test_mean_curve_draws_the_mean_and_its_interval():
    table = pd.DataFrame({"x": [1, 1, 2, 2], "y": [1.0, 3.0, 2.0, 2.0], "seed": [0, 1, 0, 1]})
    _, ax = plotting.subplots()
    plotting.mean_curve(ax, table, x="x", y="y")
    assert ax.lines[0].get_ydata() == pytest.approx([2.0, 2.0])
    plt.close("all")


def test_experiments_need_one_dataclass_and_a_new_name(toy_paper):
    with pytest.raises(TypeError, match="one dataclass"):
        toy_paper.experiment(smoke=1, laptop=1, paper=1)
    config = toy_paper.experiments["line"].configs["smoke"]
    with pytest.raises(ValueError, match="twice"):

        @toy_paper.experiment(smoke=config, laptop=config, paper=config)
        def line(config, run): ...


def test_a_paper_without_its_package_is_an_error():
    with pytest.raises(Exception, match="cannot be found"):
        Paper("no-such-package-here")
