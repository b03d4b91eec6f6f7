"""The one error a user sees as a line instead of a traceback."""


class ClaimlabError(Exception):
    """Something the user can mend; the message says what is wrong and what to do."""
