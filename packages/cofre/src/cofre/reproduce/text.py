"""E3 to E7: MDLM and FP-MDLM on text from an exact chain: budgets, consistency, solver, schedules, conversion."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pandas as pd
import torch
from scipy import stats as sps

from claimlab import Run, stats
from claimlab.stats import Interval

from ..convert import cka_profile
from ..diffusion import mask_tokens
from ..dynamics import STATES, SolverProbe, lagged_logit_kl, nested_contexts
from ..objectives import ConsistencyConfig
from ..reuse import RULES, ReuseRule
from ..sampling import sample
from ..schedules import ScheduleKind
from ..training import CONSISTENCY_OWT, CONVERSION_OWT, FP_MDLM_OWT, MDLM_OWT, Recipe
from .declaration import paper
from .generation import (
    Generator,
    Scores,
    Split,
    entropy_difference,
    entropy_ratio,
    paired_ratio,
    perplexity_ratio,
    trend,
)
from .text_arms import SAMPLING_SEED, Arms, TextConfig, TextTask, chain_task, document_task, generator_for, train_arms

_SMOKE = Recipe(steps=16, batch_size=8, learning_rate=3e-3, ema_decay=0.8)


@paper.experiment(
    smoke=TextConfig(
        length=16, hidden=16, heads=2, plain=_SMOKE, fixed_point=_SMOKE, post=replace(_SMOKE, steps=4),
        conversion=replace(_SMOKE, steps=4), consistency=ConsistencyConfig(warmup=2), longer=2, validations=2,
        validation_sequences=16, validation_times=2, budgets=(24, 48), step_costs=(4, 6), selection_samples=4,
        samples=8, blocks_of_samples=2, dynamics_samples=8, dynamics_steps=6, temperatures=(0.5, 1.0),
    ),
    laptop=TextConfig(),
    paper=TextConfig(
        length=1024, hidden=768, heads=12, cond_dim=128, dropout=0.1, positions="rotary",
        plain=MDLM_OWT, fixed_point=FP_MDLM_OWT,
        post=CONSISTENCY_OWT, conversion=CONVERSION_OWT, consistency=ConsistencyConfig(), longer=1,
        documents="Skylion007/openwebtext", budgets=(96, 192, 384, 768), selection_samples=64, samples=64,
        dynamics_samples=16, validation_sequences=1000,
    ),
    seeds={"smoke": 1, "laptop": 1, "paper": 1},
    minutes={"laptop": 8, "paper": 60_000},
    needs={"paper": "OpenWebText, GPT-2 Large (network, `pip install datasets`) and 8 GPUs; `cofre.pretrain` first"},
)  # fmt: skip
def text(config: TextConfig, run: Run) -> None:
    """Train MDLM, FP-MDLM, consistency, controls and conversions; GenPPL and entropy at equal budgets."""
    task = chain_task(config, run) if config.documents is None else document_task(config, run)
    arms = train_arms(task, config, run)
    generator = Generator(task, config, run)
    generator.choose_splits(arms["fp"])
    scores = _budgets(arms, generator)
    _consistency(arms, generator, scores)
    _dynamics(arms, task, config, run)
    _schedules(arms, generator)
    _conversion(arms, task, run)


def _budgets(arms: Arms, generator: Generator) -> dict[tuple[str, str, int], Scores]:
    """E3: GenPPL and entropy of every arm at every budget."""
    config, run, task = generator.config, generator.run, generator.task
    smallest, second, largest = config.budgets[0], config.budgets[min(1, len(config.budgets) - 1)], config.budgets[-1]
    scores: dict[tuple[str, str, int], Scores] = {}
    rows = []
    for budget in config.budgets:
        for arm in ("mdlm", "mdlm_control", "mdlm_consistency", "mdlm_sdtt"):
            steps = budget // config.blocks
            scores[arm, "none", budget] = generator.score(arms[arm], steps)
            rows.append(generator.row(arm, "none", budget, steps, scores[arm, "none", budget]))
        for arm in ("fp", "control", "consistency"):
            for rule in RULES:
                split = generator.split(rule, budget)
                scores[arm, rule, budget] = generator.score(arms[arm], split, rule)
                rows.append(generator.row(arm, rule, budget, split.steps, scores[arm, rule, budget]))
        # Equal steps: what is left of the gain when the fixed-point model may not take more steps than MDLM.
        equal = Split.of(budget, config.blocks)
        scores["fp_equal_steps", "none", budget] = generator.score(arms["fp"], equal)
        rows.append(
            generator.row("fp_equal_steps", "none", budget, equal.steps, scores["fp_equal_steps", "none", budget])
        )
    table = pd.DataFrame(rows)
    run.table("quality", table)
    run.table("data", pd.DataFrame([{"gen_ppl": task.data_perplexity, "entropy": task.data_entropy}]))

    def ratio(ours: tuple[str, str], other: tuple[str, str], *budgets: int) -> Interval:
        return perplexity_ratio(*([scores[arm, rule, b] for b in budgets] for arm, rule in (ours, other)))

    cofre, plain = ("consistency", "three_state"), ("mdlm_control", "none")
    run.measure("cofre_over_mdlm_smallest", ratio(cofre, plain, smallest))
    run.measure("cofre_over_mdlm_second", ratio(cofre, plain, second))
    apart = [scores[(*cofre, b)].interval.high < scores[(*plain, b)].interval.low for b in (smallest, second)]
    run.measure("intervals_apart", all(apart))
    run.measure("entropy_share", entropy_ratio(scores[(*cofre, smallest)], scores[(*plain, smallest)]))
    run.measure("gen_ppl_mdlm_smallest", scores[(*plain, smallest)].interval)
    run.measure("gen_ppl_cofre_smallest", scores[(*cofre, smallest)].interval)
    run.measure("gen_ppl_sdtt_smallest", scores["mdlm_sdtt", "none", smallest].interval)
    run.measure("gen_ppl_mdlm_consistency_smallest", scores["mdlm_consistency", "none", smallest].interval)
    miscounted = float((table["block_passes"] - table["budget"]).abs().max())
    run.measure("budget_miscounted", Interval(miscounted, miscounted, miscounted))
    run.measure("degenerate_rows", int(table["degenerate"].sum()))

    base, first = ("fp", "none"), ("mdlm", "none")
    run.measure("fp_over_mdlm_smallest", ratio(base, first, smallest))
    run.measure("fp_over_mdlm_largest", ratio(base, first, largest))
    sides = ([scores[arm, rule, b] for b in config.budgets] for arm, rule in (base, first))
    run.measure("fp_over_mdlm_trend", trend(*sides))
    run.measure("fp_over_mdlm_equal_steps", ratio(("fp_equal_steps", "none"), first, smallest))
    run.measure("fp_over_mdlm_equal_steps_largest", ratio(("fp_equal_steps", "none"), first, largest))

    run.measure("three_state_over_full_smallest", ratio(cofre, ("consistency", "full"), smallest))
    none = ("consistency", "none")
    by_block = paired_ratio(*([scores[arm, rule, b] for b in config.budgets] for arm, rule in (cofre, none)))
    run.measure("three_state_over_none", by_block)
    run.measure("full_over_none", ratio(("consistency", "full"), none, *config.budgets))
    run.measure("base_three_state_over_none", ratio(("fp", "three_state"), base, *config.budgets))
    run.measure("base_full_over_none", ratio(("fp", "full"), base, *config.budgets))

    run.measure("nelbo_fp_minus_mdlm", stats.paired_difference(arms.nelbo["fp"], arms.nelbo["mdlm"]))
    run.measure("val_ppl_mdlm", float(np.exp(arms.nelbo["mdlm"].mean())))
    run.measure("val_ppl_fp", float(np.exp(arms.nelbo["fp"].mean())))
    return scores


def _consistency(arms: Arms, generator: Generator, scores: dict[tuple[str, str, int], Scores]) -> None:
    """E4: consistency against as many extra steps without it, at equal budgets and at equal entropy; the long run."""
    config, run = generator.config, generator.run

    def each_budget(arm: str, rule: str) -> list[Scores]:
        return [scores[arm, rule, b] for b in config.budgets]

    ours, control = each_budget("consistency", "none"), each_budget("control", "none")
    wins = sum(a.perplexity < b.perplexity for a, b in zip(ours, control, strict=True))
    run.measure("consistency_wins_three_quarters", wins >= 0.75 * len(ours))
    run.measure("consistency_over_control", perplexity_ratio(ours, control))
    run.measure("consistency_over_base", perplexity_ratio(ours, each_budget("fp", "none")))
    reused = perplexity_ratio(each_budget("consistency", "three_state"), each_budget("control", "three_state"))
    run.measure("consistency_over_control_three_state", reused)
    drop = [b.mean_entropy - a.mean_entropy for a, b in zip(ours, control, strict=True)]
    run.measure("consistency_entropy_drop", float(np.mean(drop)))

    budget = config.budgets[min(2, len(config.budgets) - 1)]
    split = generator.split("none", budget)
    few = max(1, config.blocks_of_samples // 2)
    rows, at_one = [], {}
    for arm in ("control", "consistency", "consistency_long"):
        for temperature in config.temperatures:
            blocks = config.blocks_of_samples if temperature == 1.0 else few
            result = generator.score(arms[arm], split, temperature=temperature, blocks=blocks)
            if temperature == 1.0:
                at_one[arm] = result
            rows.append(generator.row(arm, "none", budget, split.steps, result) | {"temperature": temperature})
    curve = pd.DataFrame(rows)
    run.table("tradeoff", curve)
    run.table("post_training", arms.post)
    run.measure("degenerate_tradeoff_rows", int(curve["degenerate"].sum()))
    run.measure("consistency_over_control_equal_entropy", _at_equal_entropy(curve))
    longer = entropy_difference(at_one["consistency_long"], at_one["consistency"])
    run.measure("entropy_long_minus_selected", longer)
    run.measure("selected_step", arms.selected_step)
    run.measure("rule_fired", arms.rule_fired)
    run.measure("perplexity_rise_long", float(arms.post["perplexity"].iloc[-1] / arms.post["perplexity"].iloc[0]))


def _at_equal_entropy(curve: pd.DataFrame) -> float:
    """GenPPL of the consistency run over the control's at the same entropy, which sampling temperature sets."""
    control = curve.query("arm == 'control'").sort_values("entropy")
    ours = curve.query("arm == 'consistency' and temperature == 1.0").iloc[0]
    log_control = np.interp(ours["entropy"], control["entropy"], np.log(control["gen_ppl"]))
    return float(ours["gen_ppl"] / np.exp(log_control))


def _dynamics(arms: Arms, task: TextTask, config: TextConfig, run: Run) -> None:
    """E5: residuals with and without reuse, movement of tokens, change of predictions between steps."""
    mask_id, steps = task.vocab_size, config.dynamics_steps
    rows, initial = [], {}
    for rule in RULES:
        probe = SolverProbe(mask_id)
        generator = generator_for(run, SAMPLING_SEED, 99)
        sample(
            arms["consistency"], config.dynamics_samples, steps=steps, iterations=4, reuse=ReuseRule(rule),  # pyright: ignore
            generator=generator, observe=probe,
        )  # fmt: skip
        residuals = torch.stack(probe.residuals).transpose(0, 1).flatten(1)  # (iterations, steps x samples)
        initial[rule] = residuals[0].numpy()
        means = residuals.mean(1)
        rows += [(rule, n, float(value)) for n, value in enumerate(means)]
        if rule != "three_state":
            run.measure(f"residual_decreases_{rule}", bool((means[1:] < means[:-1]).all()))
        else:
            _movement(probe, run)
    run.table("residuals", pd.DataFrame(rows, columns=["reuse", "iteration", "residual"]))
    for rule in ("full", "three_state"):
        ratio = stats.bootstrap((initial[rule], initial["none"]), _ratio_of_medians, resamples=1000)
        run.measure(f"initial_residual_{rule}_over_none", ratio)

    contexts = nested_contexts(task.validation, steps, mask_id, generator_for(run, SAMPLING_SEED, 98))
    lags = tuple(range(1, min(5, steps)))
    times = [1 - step / steps for step in range(steps)]
    grids = {arm: lagged_logit_kl(arms[arm], contexts, lags, times=times) for arm in ("control", "consistency")}
    reduction = 1 - grids["consistency"] / grids["control"]
    run.measure("lagged_kl_reduction", stats.mean(reduction[~reduction.isnan()].numpy()))
    run.measure("lagged_kl_reduction_lag_one", float(reduction[0].nanmean()))
    rows = [
        (lag, step, *(float(grids[arm][lag - 1, step]) for arm in grids)) for lag in lags for step in range(steps - lag)
    ]
    run.table("lagged_kl", pd.DataFrame(rows, columns=["lag", "step", *grids]))


def _ratio_of_medians(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.median(a, axis) / np.median(b, axis)


def _movement(probe: SolverProbe, run: Run) -> None:
    """Order of the three kinds of tokens, and the trend of the masked ones."""
    rows = [(state, step, value) for state in STATES for step, value in probe.movement[state]]
    table = pd.DataFrame(rows, columns=["state", "step", "movement"])
    run.table("movement", table)
    means = table.groupby("state")["movement"].mean()
    run.measure("movement_ordered", bool(means[STATES[0]] > means[STATES[1]] > means[STATES[2]]))
    run.measure("movement_revealed_over_masked", float(means[STATES[0]] / means[STATES[1]]))
    run.measure("movement_masked_over_visible", float(means[STATES[1]] / means[STATES[2]]))
    masked = table[table["state"] == STATES[1]]
    fit = sps.linregress(masked["step"], masked["movement"])
    half = float(sps.t.ppf(0.975, len(masked) - 2) * fit.stderr)
    run.measure("masked_movement_slope", float(fit.slope), low=float(fit.slope) - half, high=float(fit.slope) + half)


def _schedules(arms: Arms, generator: Generator) -> None:
    """E6: iterations spread over the steps in five ways, at equal budget and steps."""
    config, run = generator.config, generator.run
    rows, scores = [], {}
    for kind in get_args(ScheduleKind):
        scores[kind] = []
        for budget in config.budgets[:2]:
            for rule in RULES:
                result = generator.score(arms["consistency"], Split.of(budget, config.schedule_cost, kind), rule)
                scores[kind].append(result)
                rows.append((kind, budget, rule, result.perplexity))
    run.table("schedules", pd.DataFrame(rows, columns=["schedule", "budget", "reuse", "gen_ppl"]))
    for kind in ("increasing", "fixed", "cosine", "front_loaded"):
        run.measure(f"decreasing_over_{kind}", perplexity_ratio(scores["decreasing"], scores[kind]))


def _conversion(arms: Arms, task: TextTask, run: Run) -> None:
    """E7: NELBO of converted models during adaptation, against a model from scratch; similarity of layers."""
    run.table("adaptation", arms.adaptation)
    last, start = arms.nelbo, arms.nelbo_at_start
    run.measure("converted_minus_scratch", stats.paired_difference(last["converted"], last["scratch"]))
    gap = stats.paired_difference(last["converted_uninitialised"], last["scratch"])
    run.measure("uninitialised_minus_scratch", gap)
    for name, values in (("start", start), ("end", last)):
        gap = stats.paired_difference(values["converted"], values["converted_uninitialised"])
        run.measure(f"initialised_{name}_gap", gap)
    generator = generator_for(run, SAMPLING_SEED, 97)
    x = task.validation[:64]
    u = torch.rand(x.shape, generator=generator).to(x.device)
    z = mask_tokens(x, torch.full((len(x),), 0.5, device=x.device), u, task.vocab_size)
    profile = cka_profile(arms["mdlm"], z).numpy()
    pairs = [(i, j, value) for (i, j), value in np.ndenumerate(profile)]
    run.table("cka", pd.DataFrame(pairs, columns=["layer", "other", "cka"]))
    half = len(profile) // 2
    run.measure("cka_early", _mean_of_pairs(profile[:half, :half]))
    run.measure("cka_late", _mean_of_pairs(profile[half:, half:]))
    run.measure("cka_across", float(profile[:half, half:].mean()))


def _mean_of_pairs(similarity: np.ndarray) -> float:
    return float(similarity[np.triu_indices(len(similarity), 1)].mean())
