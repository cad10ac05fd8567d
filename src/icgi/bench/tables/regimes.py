"""Rows of table 4: a data set at a level."""

from dataclasses import dataclass

CALIBRATION, TEST = "calibration", "test"
"""What the graphs of a data set are for; the word `part` of their lines."""


@dataclass(frozen=True, slots=True)
class Regime:
    """A data set, and the share of states that may be missed."""

    data: str
    alpha: float
    calibrated_on: str  # data set whose calibration graphs are used


REGIMES: dict[str, Regime] = {
    "UAI α=0.05": Regime("UAI", 0.05, "UAI"),
    "UAI α=0.2": Regime("UAI", 0.2, "UAI"),
    "SK β=2 α=0.1": Regime("SK β=2", 0.1, "SK β=2"),
    "EA 3D α=0.1": Regime("EA 3D", 0.1, "EA 3D"),
    "Proteins α=0.2": Regime("Proteins", 0.2, "UAI"),
}
