"""Exceptions: raised when the question was wrong, never because an answer did not converge."""


class IcgiError(Exception):
    """A mistake that the user can repair; the message says what was found, where, what to do."""


class ModelFormatError(IcgiError):
    """A model or answer file (or array) that does not describe what it should."""


class EvidenceError(IcgiError):
    """Evidence that names unknown variables or states, or that has probability zero."""


class UnsupportedModelError(IcgiError):
    """A sound model outside what the chosen engine can do."""


class BudgetError(IcgiError):
    """The engine would need more memory than the budget allows; nothing was allocated."""


class CheckpointError(IcgiError):
    """Stored weights or calibration that are missing, damaged or made for another version."""
