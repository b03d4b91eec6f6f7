"""The audit, the command line and the README's promises."""

import numpy as np
import pandas as pd
import pytest
from fisher_glass import FisherGlass, Standardiser, environment_fishers, fisher_glass
from fisher_glass.cli import app
from typer.testing import CliRunner


def data(seed=0, n=1500):
    rng = np.random.default_rng(seed)
    env = np.where(rng.random(n) < 0.1, "rare", "common")
    core, rho = rng.standard_normal(n), np.where(env == "rare", 0.98, 0.3)
    copy = rho * core + np.sqrt(1 - rho**2) * rng.standard_normal(n)
    y = (rng.random(n) < 1 / (1 + np.exp(-2 * core))).astype(int)
    return np.column_stack([core, copy, rng.standard_normal(n), np.full(n, 7.0)]), np.array(["no", "yes"])[y], env


def test_audit_finds_the_environment_that_copies_the_core():
    X, y, env = data()
    fg = FisherGlass(alpha=0.1, task=np.array([1.0, 0, 0, 0])).fit(X, y, env)
    table = fg.table_
    assert table.glass["rare"] > 3 * table.glass["common"]
    assert abs(table.accuracy["rare"] - table.accuracy["common"]) < 0.1
    assert (table.lower <= table.glass).all() and (table.glass <= table.upper).all()
    np.testing.assert_allclose(table.saturation, table.glass * fg.audit_.report.ridge)
    np.testing.assert_allclose(table.projected_information, 1 / table.glass)
    assert (table.projected_information <= table.raw_information + fg.audit_.report.ridge).all()
    assert "Fisher-Glass" in str(fg.audit_) and fg.audit_.figure().axes


def test_audit_equals_the_parts_done_by_hand():
    X, y, env = data(1)
    fg = FisherGlass(alpha=0.3).fit(X, y, env)
    z = Standardiser.of(X)(X)
    assert z.shape[1] == 4 and (z[:, -1] == 1).all()  # the constant column is dropped, the constant appended
    p = fg.head_.predict_proba(z[:, :-1])[:, 1]
    report = fisher_glass(environment_fishers(z, p, env), fg.task_, alpha=0.3)
    np.testing.assert_allclose(fg.audit_.report.per_env, report.per_env)
    assert fg.audit_.report.value == pytest.approx(report.value)


def test_held_out_audit_keeps_the_ridge_and_own_probabilities_are_used():
    X, y, env = data(2)
    p = np.random.default_rng(0).uniform(0.2, 0.8, size=len(y))
    fg = FisherGlass(weights="uniform").fit(X, y, env, probabilities=p)
    held_out = fg.audit(X[:500], y[:500], env[:500], p[:500])
    assert held_out.report.ridge == fg.audit_.report.ridge
    assert held_out.table.weight.tolist() == [0.5, 0.5]
    both = np.stack([1 - p, p], axis=1)
    pd.testing.assert_frame_equal(fg.table_, FisherGlass(weights="uniform").fit(X, y, env, probabilities=both).table_)
    with pytest.raises(ValueError, match="probabilities"):
        fg.audit(X, y, env)


def test_three_classes_use_the_softmax_head():
    X, _, env = data(3)
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    fg = FisherGlass().fit(X, y, env)
    assert fg.task_.shape == (2 * 4, 2) and np.isfinite(fg.table_.glass).all()
    with pytest.raises(ValueError, match="two-class"):
        fg.rank_repairs(X, env)


def test_repairs_prefer_samples_that_break_the_copy():
    X, y, env = data(4)
    fg = FisherGlass(alpha=0.1, task=np.array([1.0, 0, 0, 0])).fit(X, y, env)
    pool = np.array([[1.0, 1.0, 0, 7], [1.0, -1.0, 0, 7], [0.0, 0.0, 0, 7]])
    ranked = fg.rank_repairs(pool, np.array(["rare"] * 3), labels=np.array(["yes"] * 3))
    assert ranked.index[0] == 1 and (ranked.gain >= 0).all()
    chosen = fg.rank_repairs(np.tile(pool, (5, 1)), np.array(["rare"] * 15), budget=4)
    assert len(chosen) == 4 and (np.diff(chosen.fisher_glass) < 0).all()
    assert chosen["loss"].isna().all()


def test_nuisance_given_by_the_user():
    X, y, env = data(5)
    only_third = FisherGlass(task=np.array([1.0, 0, 0, 0]), nuisance=np.array([0, 0, 1.0, 0])).fit(X, y, env)
    everything = FisherGlass(task=np.array([1.0, 0, 0, 0])).fit(X, y, env)
    assert only_third.table_.glass["rare"] < everything.table_.glass["rare"] / 3


def bad(change):
    X, y, env = data(6, 200)
    values = {"features": X, "labels": y, "environments": env}
    values.update(change(X, y, env))
    return values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y, e: {"features": np.where(np.arange(len(X))[:, None] == 3, np.nan, X)}, "features must be finite"),
        (lambda X, y, e: {"labels": np.array(["yes"] * len(y))}, "at least two classes"),
        (lambda X, y, e: {"labels": y[:-1]}, "labels for 200 samples"),
        (lambda X, y, e: {"environments": np.array([None, *e[1:]], dtype=object)}, "environments must not be missing"),
        (lambda X, y, e: {"features": np.ones_like(X)}, "every feature is constant"),
        (lambda X, y, e: {"environments": y}, "give attributes that mix the classes"),
        (lambda X, y, e: {"probabilities": np.full(len(y), 1.5)}, r"lie in \[0, 1\]"),
        (lambda X, y, e: {"probabilities": np.full((len(y), 3), 1 / 3)}, "2 classes, got 3"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(ValueError, match=message):
        FisherGlass().fit(**bad(change))


def test_bad_settings():
    with pytest.raises(ValueError, match="positive ridge"):
        FisherGlass(ridge=0.0)
    with pytest.raises(ValueError, match="call fit first"):
        _ = FisherGlass().table_
    X, y, env = data(7, 200)
    with pytest.raises(ValueError, match="4 entries"):
        FisherGlass(task=np.ones(3)).fit(X, y, env)
    with pytest.raises(ValueError, match="not audited: elsewhere"):
        FisherGlass().fit(X, y, env).rank_repairs(X[:2], np.array(["elsewhere", "rare"]))
    with pytest.raises(ValueError, match="expected 4 features"):
        FisherGlass().fit(X, y, env).audit(X[:, :2], y, env)
    with pytest.raises(ValueError, match="'maybe'"):
        FisherGlass().fit(X, y, env).audit(X[:1], np.array(["maybe"]), env[:1])


def test_command_line_audits_and_ranks(tmp_path):
    X, y, env = data(8, 300)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"]).assign(y=y, place=env)
    frame.to_csv(tmp_path / "data.csv", index=False)
    frame.head(20).drop(columns="y").to_csv(tmp_path / "pool.csv", index=False)
    out = {name: str(tmp_path / f"out.{name}") for name in ("csv", "png")}
    ranking = tmp_path / "ranking.csv"
    arguments = [str(tmp_path / "data.csv"), "--label", "y", "--environment", "place", "--table", out["csv"]]
    pool = ["--figure", out["png"], "--pool", str(tmp_path / "pool.csv"), "--budget", "5", "--ranking", str(ranking)]
    result = CliRunner().invoke(app, arguments + pool)
    assert result.exit_code == 0, result.output
    assert "Fisher-Glass (CVaR 0.1" in result.output
    assert pd.read_csv(out["csv"]).environment.tolist() == ["common", "rare"]
    assert len(pd.read_csv(ranking)) == 5 and (tmp_path / "out.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--label", "z", "--environment", "place"], "no column z"),
        (["--label", "y", "--environment", "place", "--features", "a,word"], "column word"),
        (["--label", "y", "--environment", "place", "--features", "a", "--ridge", "big"], "'big'"),
        (["--label", "y", "--environment", "place", "--features", "a", "--alpha", "2"], "alpha must lie"),
    ],
)
def test_command_line_errors_are_one_line(tmp_path, extra, message):
    X, y, env = data(9, 100)
    pd.DataFrame({"a": X[:, 0], "word": "x", "y": y, "place": env}).to_csv(tmp_path / "data.csv", index=False)
    result = CliRunner().invoke(app, [str(tmp_path / "data.csv"), *extra])
    assert result.exit_code == 1 and message in result.output and result.output.count("\n") == 1
