"""kernel-fdr: the Newton solver against the sibling paper's natural gradient and scipy, BH against statsmodels."""

import numpy as np
from kernel_fdr import BetaBinomialAlternative, CountData, Eigenfeatures, KernelNullPrior, count_mirror
from kernel_fdr.baselines import bh
from kernel_fdr.kernels import Matern
from kernel_fdr.likelihood import likelihood_ratio
from kernel_fdr.simulate import draw_counts, plane
from kernel_fdr.solver import objective, solve_descent, solve_newton
from scipy.optimize import minimize
from statsmodels.stats.multitest import multipletests

TRUTH = BetaBinomialAlternative(0.3, 6.0)
SPACE = plane()
DATA, _ = draw_counts(SPACE, 50, np.random.default_rng(0))
RATIO = likelihood_ratio(DATA.masked(), TRUTH)
SETTINGS = (RATIO, 0.9, 10.0, 500.0)


def test_newton_against_natural_gradient(compare):
    features = Eigenfeatures.of(Matern(0.3, 2.5, relative=False), SPACE.locations, rank=120)
    gram = features.values @ features.values.T
    best = objective(solve_newton(features.values, *SETTINGS), features.values, *SETTINGS)[0]
    fit = solve_descent(gram, *SETTINGS, 5e-4, 5000)
    assert best <= fit.objectives[-1] + 1e-3 * abs(best)
    compare(
        "null prior, N = 625, rank 120",
        lambda: solve_newton(features.values, *SETTINGS),
        lambda: solve_descent(gram, *SETTINGS, 5e-4, 5000, target=best + 1e-3 * abs(best)),
        peer_name="natural gradient (sibling's 5,000 steps, or fewer to the same objective)",
        target=0.2,
        repeats=5,
    )


def test_newton_against_scipy_lbfgs(compare):
    features = Eigenfeatures.of(SPACE.kernel, SPACE.locations, rank=120).values

    def lbfgs():
        return minimize(
            objective, np.zeros(120), args=(features, *SETTINGS), jac=True, method="L-BFGS-B", options={"ftol": 1e-10}
        )

    best = objective(solve_newton(features, *SETTINGS), features, *SETTINGS)[0]
    assert abs(best - lbfgs().fun) < 1e-4 * abs(best)
    compare(
        "null prior, N = 625, rank 120, Matern 3/2",
        lambda: solve_newton(features, *SETTINGS),
        lbfgs,
        peer_name="scipy L-BFGS-B",
        target=1.0,
    )


def test_bh_against_statsmodels(compare):
    data = CountData(np.random.default_rng(1).binomial(1000, 0.3, 20_000), 1000)
    p = data.mc_pvalues
    assert (bh(data, 0.1) == multipletests(p, 0.1, "fdr_bh")[0]).all()
    compare(
        "BH, N = 20,000",
        lambda: bh(data, 0.1),
        lambda: multipletests(p, 0.1, "fdr_bh"),
        peer_name="statsmodels",
        target=1.15,
    )


def test_whole_rule_against_bh(compare):
    """What structure costs: fit of the prior with a given penalty, and the decision."""
    features = Eigenfeatures.of(SPACE.kernel, SPACE.locations)
    prior = KernelNullPrior(features, lam=10.0)
    assert count_mirror(DATA, prior, 0.1, random_state=0).rejected.sum() > bh(DATA, 0.1).sum()
    compare(
        "mirror rule, N = 625 (cost of learning)",
        lambda: count_mirror(DATA, prior, 0.1, random_state=0),
        lambda: bh(DATA, 0.1),
        peer_name="scipy BH",
        target=None,
    )
