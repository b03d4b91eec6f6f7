"""Feasible sets: nonempty, compact, and able to say what the cheapest decision of a cost is.

The convex kinds are all given to the solvers in one form, `x = lift @ z` with z in a `LinearSystem`: a hull of
vertices has the convex
weights as z, the others have z = x.
"""

from functools import cached_property
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.spatial.distance import pdist

from finite_resolution.errors import InfeasibleSetError, UnboundedSetError
from finite_resolution.linear_programs import CHECK_TOLERANCE, LinearProgram, LinearSystem
from finite_resolution.validation import Numbers, number_array

Norm = Literal[1, 2, "inf"]
_METRICS: dict[Norm, Literal["cityblock", "euclidean", "chebyshev"]] = {
    1: "cityblock",
    2: "euclidean",
    "inf": "chebyshev",
}


@runtime_checkable
class FeasibleSet(Protocol):
    """A nonempty compact set X of decisions in R^d."""

    dim: int
    """d, the number of cost components."""

    def minimize(self, c: Float[np.ndarray, " d"]) -> tuple[float, Float[np.ndarray, " d"]]:
        """`v(c) = min_{x in X} c x` and a decision that attains it."""
        ...

    def direction_basis(self) -> Float[np.ndarray, "d l"]:
        """Orthonormal basis of `L = span(X - X)`: the cost directions that can change a regret."""
        ...

    def diameter(self, norm: Norm) -> float:
        """Largest `||x - x'||` over X (for a polytope given by constraints: an upper bound)."""
        ...


class ConvexSet(FeasibleSet, Protocol):
    """A feasible set that may mix decisions."""

    def lifted(self) -> tuple[sparse.csr_array, LinearSystem]:
        """`(lift, system)`: X is `{lift @ z : z in system}`, all bounds of z finite."""
        ...


class _Vertices:
    """What a convex hull and a list of the same points share: a linear cost is cheapest at one of them."""

    def __init__(self, V: Numbers) -> None:
        self.V: Float[np.ndarray, "p d"] = number_array("V", V, (None, None))
        if not len(self.V):
            raise InfeasibleSetError("V has no rows: the feasible set is empty")
        self.dim = self.V.shape[1]

    def minimize(self, c: Float[np.ndarray, " d"]) -> tuple[float, Float[np.ndarray, " d"]]:
        values = self.V @ c
        best = int(np.argmin(values))
        return float(values[best]), self.V[best]

    def direction_basis(self) -> Float[np.ndarray, "d l"]:
        return _row_space(self.V - self.V[0])

    def diameter(self, norm: Norm) -> float:
        return float(pdist(self.V, _METRICS[norm]).max(initial=0.0))


class VertexHull(_Vertices):
    """Convex hull of the rows of V, shape (p, d): decisions may be mixed.

    Raises:
        InfeasibleSetError: no rows.
        ValueError: not a matrix of finite numbers.
    """

    def lifted(self) -> tuple[sparse.csr_array, LinearSystem]:
        p = len(self.V)
        ones = np.ones(1)
        return sparse.csr_array(self.V.T), LinearSystem(
            sparse.csr_array(np.ones((1, p))), ones, ones, np.zeros(p), np.ones(p)
        )


class FiniteDecisions(_Vertices):
    """The rows of V, shape (p, d), as indivisible decisions: exactly one of them is taken.

    Raises:
        InfeasibleSetError: no rows.
        ValueError: not a matrix of finite numbers.
    """


class Box:
    """`{x : lb <= x <= ub}`, arrays of shape (d,), every bound finite.

    Raises:
        InfeasibleSetError: some lb exceeds its ub.
        ValueError: shapes differ, or a bound is not finite.
    """

    def __init__(self, lb: Numbers, ub: Numbers) -> None:
        self.lb: Float[np.ndarray, " d"] = number_array("lb", lb, (None,))
        self.dim = len(self.lb)
        self.ub: Float[np.ndarray, " d"] = number_array("ub", ub, (self.dim,))
        if (self.lb > self.ub).any():
            j = int(np.argmax(self.lb > self.ub))
            raise InfeasibleSetError(
                f"lb[{j}] = {self.lb[j]:g} exceeds ub[{j}] = {self.ub[j]:g}: the feasible set is empty"
            )

    def minimize(self, c: Float[np.ndarray, " d"]) -> tuple[float, Float[np.ndarray, " d"]]:
        x = np.where(c > 0, self.lb, self.ub)
        return float(c @ x), x

    def direction_basis(self) -> Float[np.ndarray, "d l"]:
        return np.eye(self.dim)[:, self.ub > self.lb]

    def diameter(self, norm: Norm) -> float:
        return _length(self.ub - self.lb, norm)

    def lifted(self) -> tuple[sparse.csr_array, LinearSystem]:
        none = np.zeros(0)
        return sparse.eye_array(self.dim, format="csr"), LinearSystem(
            sparse.csr_array((0, self.dim)), none, none, self.lb, self.ub
        )


class Polytope:
    """`{x : A_ub x <= b_ub, A_eq x = b_eq, lb <= x <= ub}`; must be nonempty and bounded. Arguments as in
    `scipy.optimize.linprog`.

    Args:
        A_ub, b_ub: inequality rows, shapes (m, d) and (m,), or None.
        A_eq, b_eq: equality rows, shapes (k, d) and (k,), or None.
        lb, ub: bounds, a number or shape (d,); None (or an infinite entry) leaves the side open.

    Raises:
        InfeasibleSetError: no point satisfies the constraints.
        UnboundedSetError: some coordinate is not bounded.
        ValueError: shapes do not fit, numbers are not finite, or nothing tells the dimension.
    """

    def __init__(
        self,
        A_ub: Numbers | None = None,
        b_ub: Numbers | None = None,
        A_eq: Numbers | None = None,
        b_eq: Numbers | None = None,
        lb: Numbers | None = 0.0,
        ub: Numbers | None = None,
    ) -> None:
        self.dim = _dimension(A_ub, A_eq, lb, ub)
        self.A_ub, self.b_ub = _rows("ub", A_ub, b_ub, self.dim)
        self.A_eq, self.b_eq = _rows("eq", A_eq, b_eq, self.dim)
        self.lb = _bound("lb", lb, -np.inf, self.dim)
        self.ub = _bound("ub", ub, np.inf, self.dim)
        if (self.lb > self.ub).any():
            j = int(np.argmax(self.lb > self.ub))
            raise InfeasibleSetError(
                f"lb[{j}] = {self.lb[j]:g} exceeds ub[{j}] = {self.ub[j]:g}: the feasible set is empty"
            )
        rows = sparse.csr_array(np.vstack([self.A_ub, self.A_eq]))
        low, high = np.r_[np.full(len(self.b_ub), -np.inf), self.b_eq], np.r_[self.b_ub, self.b_eq]
        stated = LinearSystem(rows, low, high, self.lb, self.ub)
        LinearProgram(stated, np.zeros(self.dim)).solve()
        self._system = LinearSystem(rows, low, high, *_finite_bounds(stated))

    @cached_property
    def _program(self) -> LinearProgram:
        return LinearProgram(self._system, np.zeros(self.dim))

    def minimize(self, c: Float[np.ndarray, " d"]) -> tuple[float, Float[np.ndarray, " d"]]:
        self._program.set_cost(c)
        solution = self._program.solve()
        return solution.value, solution.z

    def direction_basis(self) -> Float[np.ndarray, "d l"]:
        # Each step looks along a direction not yet decided: either X has width there (a new direction of L) or it has
        # none (orthogonal to L).
        found, constant = np.zeros((self.dim, 0)), np.zeros((self.dim, 0))
        while found.shape[1] + constant.shape[1] < self.dim:
            decided = np.hstack([found, constant])
            c = np.linalg.svd(decided, full_matrices=True)[0][:, -1] if decided.size else np.eye(self.dim)[:, 0]
            low, high = self.minimize(c)[1], self.minimize(-c)[1]
            if c @ (high - low) > CHECK_TOLERANCE * max(1.0, np.abs(high).max(), np.abs(low).max()):
                new = high - low
                for _ in range(2):  # twice is enough (Gram-Schmidt)
                    new = new - found @ (found.T @ new)
                found = np.column_stack([found, new / np.linalg.norm(new)])
            else:
                constant = np.column_stack([constant, c])
        return found

    def diameter(self, norm: Norm) -> float:
        widths = [-self.minimize(-axis)[0] - self.minimize(axis)[0] for axis in np.eye(self.dim)]
        return _length(np.array(widths), norm)

    def lifted(self) -> tuple[sparse.csr_array, LinearSystem]:
        return sparse.eye_array(self.dim, format="csr"), self._system


class ProductSet:
    """`X_1 x ... x X_B` of convex sets: the cost is the blocks' costs one after the other."""

    def __init__(self, blocks: "list[ConvexSet]") -> None:
        self.blocks = blocks
        self.dim = sum(block.dim for block in blocks)

    def minimize(self, c: Float[np.ndarray, " d"]) -> tuple[float, Float[np.ndarray, " d"]]:
        cuts = np.cumsum([block.dim for block in self.blocks])[:-1]
        answers = [block.minimize(part) for block, part in zip(self.blocks, np.split(c, cuts), strict=True)]
        return float(sum(value for value, _ in answers)), np.concatenate([x for _, x in answers])

    def direction_basis(self) -> Float[np.ndarray, "d l"]:
        return sparse.block_diag([block.direction_basis() for block in self.blocks]).toarray()

    def diameter(self, norm: Norm) -> float:
        return _length(np.array([block.diameter(norm) for block in self.blocks]), norm)

    def lifted(self) -> tuple[sparse.csr_array, LinearSystem]:
        lifts, systems = zip(*(block.lifted() for block in self.blocks), strict=True)
        sides = [
            np.concatenate([getattr(s, side) for s in systems]) for side in ("row_lower", "row_upper", "lower", "upper")
        ]
        return _block_csr(lifts), LinearSystem(_block_csr([s.A for s in systems]), *sides)


def projected_cost_dimension(X: FeasibleSet, costs: Numbers, *, linear: bool = False) -> int:
    """Dimension `a` of the costs after the invisible directions (orthogonal to `span(X - X)`) are taken out.

    The affine dimension of `P_L C`, which bounds inclusion-minimal hard tuples by a + 1 (reconstruction: a basic
    optimum of the
    mixture LP); `linear=True` gives the dimension of the span instead, what a Helly argument would use.

    Raises:
        ValueError: `costs` is not a nonempty (n, d) array of finite numbers.
    """
    costs = number_array("costs", costs, (None, X.dim))
    if not len(costs):
        raise ValueError("costs is empty: expected at least one row")
    projected = costs @ X.direction_basis()
    return _row_space(projected if linear else projected - projected[0]).shape[1]


def _row_space(rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "d l"]:
    if not rows.size:
        return np.zeros((rows.shape[1], 0))
    _, singular, right = np.linalg.svd(rows, full_matrices=False)
    # relative to the largest: LP bases are exact to about 1e-9 only
    return right[singular > 1e-9 * singular[0]].T if singular[0] > 0 else np.zeros((rows.shape[1], 0))


def _block_csr(parts) -> sparse.csr_array:
    return sparse.csr_array(sparse.block_diag([sparse.coo_array(part) for part in parts], format="csr"))


def _length(vector: Float[np.ndarray, " d"], norm: Norm) -> float:
    return float(np.linalg.norm(vector, np.inf if norm == "inf" else norm))


def _dimension(A_ub, A_eq, lb, ub) -> int:
    for name, value, axes in (("A_ub", A_ub, 2), ("A_eq", A_eq, 2), ("lb", lb, 1), ("ub", ub, 1)):
        if value is not None and np.ndim(value) == axes:
            return np.shape(value)[-1]
        if value is not None and axes == 2:
            raise ValueError(f"{name} must be a matrix, got {np.ndim(value)} dimensions")
    raise ValueError("the dimension is unknown: give A_ub, A_eq, or lb or ub as an array")


def _rows(kind: str, A: Numbers | None, b: Numbers | None, dim: int) -> tuple[np.ndarray, np.ndarray]:
    if (A is None) != (b is None):
        raise ValueError(f"A_{kind} and b_{kind} must be given together")
    if A is None or b is None:
        return np.zeros((0, dim)), np.zeros(0)
    matrix = number_array(f"A_{kind}", A, (None, dim))
    return matrix, number_array(f"b_{kind}", b, (len(matrix),))


def _bound(name: str, value: Numbers | None, open_side: float, dim: int) -> np.ndarray:
    array = np.full(dim, open_side) if value is None else np.asarray(value)
    return number_array(name, np.full(dim, array) if array.ndim == 0 else array, (dim,), infinite=True)


def _finite_bounds(system: LinearSystem) -> tuple[np.ndarray, np.ndarray]:
    """The bounds with every open side closed where the rows already end it, one unit further out so that it never
    binds.
    """
    program = LinearProgram(system, np.zeros(system.columns))
    sides = []
    for sign, given in ((1.0, system.lower), (-1.0, system.upper)):
        closed = given.copy()
        for j in np.flatnonzero(np.isinf(given)):
            axis = np.zeros(system.columns)
            axis[j] = sign
            program.set_cost(axis)
            try:
                closed[j] = sign * (program.solve().value - 1.0)
            except UnboundedSetError as error:
                side = "below" if sign > 0 else "above"
                raise UnboundedSetError(f"the feasible set is unbounded: coordinate {j} has no limit {side}") from error
        sides.append(closed)
    return sides[0], sides[1]
