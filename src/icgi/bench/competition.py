"""Grids of `uai22`: the usual ones, and the published leader board beside them."""

from icgi.bench.runner import Run
from icgi.bench.summary import Grid
from icgi.bench.summary import grids as usual
from icgi.bench.table import number


def grids(run: Run) -> list[Grid]:
    """All grids of the table."""
    from icgi.bench.tables.uai22 import leaderboard

    published = leaderboard()
    solvers = sorted({solver for _, _, solver in published})
    groups = sorted({group for group, _, _ in published})
    rows = tuple(
        (group, *(number(_score(published.get((group, "score", s))), 1) for s in solvers))
        for group in groups
    )
    board = Grid(
        "Published, at 20 s",
        ("group", *solvers),
        rows,
        "Means over all instances of the group on the competition's leader board of 2023-03-10; "
        "not comparable with the rows above.",
    )
    return [*usual(run), *([board] if rows else [])]


def _score(value: float | str | None) -> float | None:
    return None if value is None else float(value)
