"""The one error that ends a run with a sentence instead of a stack trace."""


class RigError(Exception):
    """Something outside this program is not as the measurement needs it; the message says what."""
