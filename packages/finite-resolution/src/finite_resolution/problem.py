"""The problem: which decisions there are, which costs are possible, which measurements can be bought."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from finite_resolution.feasible import FeasibleSet, FiniteDecisions, projected_cost_dimension
from finite_resolution.regret_program import ConvexRegretProgram, FiniteRegretProgram
from finite_resolution.validation import Numbers, nonnegative, number_array


@dataclass(frozen=True, eq=False, init=False)
class Queries:
    """The measurements on offer. Query j reads `y_j = q_j c + e_j` with `|e_j| <= delta_j` (box noise).

    Args:
        Q: directions q_j, shape (M, d); M may be 0.
        delta: error bounds, a number or shape (M,), >= 0, in the unit of the readings.
        price: prices w_j, a number or shape (M,), > 0.
        names: unique names; `q0, q1, ...` when left out.

    Raises:
        ValueError: shapes do not fit, a number is not finite, delta < 0, price <= 0, or a name occurs twice.
    """

    Q: Float[np.ndarray, "m d"]
    delta: Float[np.ndarray, " m"]
    price: Float[np.ndarray, " m"]
    names: tuple[str, ...]

    def __init__(
        self, Q: Numbers, delta: Numbers = 0.0, price: Numbers = 1.0, names: Sequence[object] | None = None
    ) -> None:
        Q = number_array("Q", Q, (None, None))
        m = len(Q)
        delta = number_array("delta", np.full(m, delta) if np.ndim(delta) == 0 else delta, (m,))
        price = number_array("price", np.full(m, price) if np.ndim(price) == 0 else price, (m,))
        names = tuple(f"q{j}" for j in range(m)) if names is None else tuple(str(name) for name in names)
        for name, values, bad, wanted in (("delta", delta, delta < 0, ">= 0"), ("price", price, price <= 0, "> 0")):
            if bad.any():
                j = int(np.argmax(bad))
                raise ValueError(f"{name} must be {wanted}, got {values[j]:g} for query {j}")
        if len(names) != m:
            raise ValueError(f"names must have one entry a query, got {len(names)} for {m} queries")
        if len(set(names)) != m:
            raise ValueError(
                f"names must be unique, got {next(n for n in names if names.count(n) > 1)!r} more than once"
            )
        for attribute, value in (("Q", Q), ("delta", delta), ("price", price), ("names", names)):
            object.__setattr__(self, attribute, value)

    def __len__(self) -> int:
        return len(self.Q)


class Problem:
    """A feasible set, a finite cost library, the queries on offer and the regret that is tolerated.

    Args:
        X: feasible set in R^d.
        costs: cost library, shape (N, d), N >= 1.
        queries: the measurements on offer.
        eps: regret tolerance, >= 0, in the unit of the costs.
        tol: numerical tolerance. A tuple is hard when its gap exceeds `eps + gap_tol`; a query separates a tuple when
            its range exceeds
            `2 delta + reading_tol`; both are `tol * max(1, largest absolute cost or reading)`.
        scenarios: names of the costs; `0, 1, ...` when left out.
        components: names of the d cost components; `0, 1, ...` when left out.

    Raises:
        ValueError: shapes do not fit, a number is not finite, the library is empty, eps < 0 or tol <= 0.
    """

    def __init__(
        self,
        X: FeasibleSet,
        costs: Numbers,
        queries: Queries,
        eps: float,
        tol: float = 1e-7,
        scenarios: Sequence[object] | None = None,
        components: Sequence[object] | None = None,
    ) -> None:
        if not isinstance(X, FeasibleSet):
            raise TypeError(
                f"X must be a feasible set (Polytope, VertexHull, FiniteDecisions, Box), got {type(X).__name__}"
            )
        if not isinstance(queries, Queries):
            raise TypeError(f"queries must be Queries, got {type(queries).__name__}")
        self.X = X
        self.costs: Float[np.ndarray, "n d"] = number_array("costs", costs, (None, X.dim))
        if not len(self.costs):
            raise ValueError("costs is empty: expected at least one row")
        if queries.Q.shape[1] != X.dim:
            raise ValueError(f"Q must have {X.dim} columns, as the feasible set, got {queries.Q.shape[1]}")
        self.queries = queries
        self.eps = nonnegative("eps", eps)
        self.tol = nonnegative("tol", tol)
        self.scenarios = _names("scenarios", scenarios, len(self.costs))
        self.components = _names("components", components, X.dim)
        self.gap_tol = tol * max(1.0, float(np.abs(self.costs).max()))
        self.reading_tol = tol * max(1.0, float(np.abs(self.readings).max(initial=0.0)))

    @classmethod
    def from_frames(
        cls,
        X: FeasibleSet,
        costs: pd.DataFrame,
        queries: pd.DataFrame,
        prices: "pd.Series | float" = 1.0,
        errors: "pd.Series | float" = 0.0,
        eps: float = 0.0,
    ) -> "Problem":
        """A problem from tables: a row a scenario (or a query), a column a cost component, matched by name.

        Args:
            X: feasible set; its components are in the order of the columns of `costs`.
            costs: index = scenario names, columns = component names.
            queries: index = query names, columns = component names; components left out weigh 0.
            prices, errors: one number for all, or a series by query name.
            eps: regret tolerance.

        Raises:
            ValueError: a query names a component that `costs` does not have, a price or error is missing, a name
                occurs twice, or any of
                the constructors' reasons.
        """
        if costs.columns.has_duplicates:
            raise ValueError(f"costs has the column {costs.columns[costs.columns.duplicated()][0]!r} more than once")
        unknown = [str(c) for c in queries.columns if c not in costs.columns]
        if unknown:
            raise ValueError(f"queries has a column {unknown[0]!r} that costs does not have")
        if queries.index.has_duplicates:
            raise ValueError(
                f"names must be unique, got {queries.index[queries.index.duplicated()][0]!r} more than once"
            )
        per_query = []
        for name, value in (("prices", prices), ("errors", errors)):
            if isinstance(value, pd.Series):
                missing = queries.index.difference(value.index)
                if len(missing):
                    raise ValueError(f"{name} has no entry for query {missing[0]!r}")
                value = value.reindex(queries.index).to_numpy()
            per_query.append(value)
        Q = queries.reindex(columns=costs.columns, fill_value=0.0)
        names = tuple(str(name) for name in queries.index)
        table = Queries(Q.to_numpy(), delta=per_query[1], price=per_query[0], names=names)
        return cls(X, costs.to_numpy(), table, eps, scenarios=list(costs.index), components=list(costs.columns))

    def replace(self, *, eps: float | None = None, queries: Queries | None = None) -> "Problem":
        """The same decisions and costs with another tolerance or other queries; what was computed for the costs is
        kept.
        """
        other = Problem(
            self.X,
            self.costs,
            self.queries if queries is None else queries,
            self.eps if eps is None else eps,
            self.tol,
            self.scenarios,
            self.components,
        )
        for name in ("optimal_values", "program", "tuple_size_bound"):
            other.__dict__[name] = getattr(self, name)
        return other

    @cached_property
    def optimal_values(self) -> Float[np.ndarray, " n"]:
        """`v(c_i)`, shape (N,)."""
        return np.array([self.X.minimize(c)[0] for c in self.costs])

    def regret(self, x: Numbers) -> Float[np.ndarray, " n"]:
        """Regret of decision x, shape (d,), under every cost of the library, shape (N,)."""
        return self.costs @ number_array("x", x, (self.X.dim,)) - self.optimal_values

    @cached_property
    def readings(self) -> Float[np.ndarray, "n m"]:
        """Error-free readings `q_j c_i`, shape (N, M)."""
        return self.costs @ self.queries.Q.T

    @cached_property
    def program(self) -> ConvexRegretProgram | FiniteRegretProgram:
        """The solver of `min_x max_i r(x, c_i)` for groups of the library's costs."""
        if isinstance(self.X, FiniteDecisions):
            return FiniteRegretProgram(self.X, self.costs, self.optimal_values)
        return ConvexRegretProgram(self.X, self.costs, self.optimal_values)  # type: ignore[arg-type]

    @cached_property
    def tuple_size_bound(self) -> int:
        """Largest possible size of an inclusion-minimal hard tuple (reconstruction).

        `a + 1` for convex X, with a the projected cost dimension; the number of decisions for a finite list.
        """
        if isinstance(self.X, FiniteDecisions):
            return len(self.X.V)
        return projected_cost_dimension(self.X, self.costs) + 1

    @property
    def hard_above(self) -> float:
        """A tuple is hard when its gap exceeds this."""
        return self.eps + self.gap_tol

    @property
    def separated_above(self) -> Float[np.ndarray, " m"]:
        """Query j tells a tuple apart when the range of its readings exceeds entry j."""
        return 2.0 * self.queries.delta + self.reading_tol

    def members(self, members: Sequence[int] | np.ndarray) -> list[int]:
        """`members` as checked indices of costs.

        Raises:
            ValueError: empty, an index out of range, or one twice.
        """
        return _indices("members", members, len(self.costs), "costs", allow_empty=False)

    def design(self, design: Sequence[int] | np.ndarray) -> list[int]:
        """`design` as checked, sorted indices of queries.

        Raises:
            ValueError: an index out of range, or one twice.
        """
        return sorted(_indices("design", design, len(self.queries), "queries", allow_empty=True))

    def joined(self, design: Sequence[int]) -> Bool[np.ndarray, "n n"]:
        """The indistinguishability graph: entry (i, k) says that no query of the design tells costs i and k apart."""
        graph = np.ones((len(self.costs), len(self.costs)), dtype=bool)
        for j in self.design(design):
            y = self.readings[:, j]
            graph &= np.abs(y[:, None] - y[None, :]) <= self.separated_above[j]
        return graph


def _indices(name: str, values: Sequence[int] | np.ndarray, count: int, what: str, *, allow_empty: bool) -> list[int]:
    indices = [int(i) for i in values if int(i) == i]
    if len(indices) != len(values):
        raise ValueError(f"{name} must be integers, got {list(values)!r:.80}")
    if not indices and not allow_empty:
        raise ValueError(f"{name} is empty: expected at least one index")
    wrong = [i for i in indices if not 0 <= i < count]
    if wrong:
        raise ValueError(f"{name} has the unknown index {wrong[0]}: there are {count} {what}, numbered from 0")
    if len(set(indices)) != len(indices):
        raise ValueError(f"{name} has an index more than once: {indices}")
    return indices


def _names(what: str, names: Sequence[object] | None, count: int) -> tuple[str, ...]:
    texts = tuple(str(name) for name in (range(count) if names is None else names))
    if len(texts) != count:
        raise ValueError(f"{what} must have {count} names, got {len(texts)}")
    return texts
