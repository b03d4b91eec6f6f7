"""What can go wrong, by name."""


class InfeasibleSetError(ValueError):
    """The feasible set is empty."""


class UnboundedSetError(ValueError):
    """The feasible set is not bounded, so some cost has no cheapest decision."""


class InconsistentReadingError(ValueError):
    """No cost of the library explains the readings within the error bounds."""


class UncoverableError(ValueError):
    """Some element belongs to no set, so no cover exists."""


class SolverError(RuntimeError):
    """An external solver failed, or its answer did not survive the re-check. Never read as an answer."""


class TimeLimitError(RuntimeError):
    """The time allowed ran out before the answer was certain."""
