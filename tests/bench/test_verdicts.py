"""Verdicts on the paper's claims from lines that are written here, and marks in pages."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import wilcoxon
from typer.testing import CliRunner

from icgi.bench.available import identity
from icgi.bench.render import refreshed, sections
from icgi.bench.runner import Run
from icgi.bench.tables import TABLES
from icgi.bench.verdicts import claims, counted, short
from icgi.cli import app

HERE = Path(__file__).parents[2]
ROW = "SK N=200 β=1.5 h=0.5"  # the paper: LBP does not converge, ICG-I 0.015


def line(key: str, column: str, case: int, mae: float, status: str = "at rest", **more) -> dict:
    engine = {"LBP": "lbp:damping=0", "ICG-I": "icgi:paper", "BPNN": "bpnn"}.get(column, column)
    return {
        "key": key, "case": f"c{case}", "group": ROW, "column": column, "engine": engine,
        "seed": 42, "asked": 3.0, "status": status, "mae": mae, "max": mae, "kl": mae,
        "seconds": 1.0, "reference_error": 0.0, "version": "0", "hardware": "none", **more,
    }  # fmt: skip


def run_of(tmp_path: Path, lines: list[dict], table: str = "table2") -> Run:
    tmp_path.mkdir(exist_ok=True)
    run = Run(TABLES[table], "small", tmp_path)
    run.manifest.append(lines)
    return run


def verdicts(run: Run) -> dict[str, str]:
    return {row[2]: row[4] for row in claims({run.table.name: run}).rows}


@pytest.mark.parametrize(
    ("mae", "error", "verdict"),
    [(0.010, 0.0, "holds"), (0.030, 0.0, "**does not hold**: 2 times as large"),
     (0.030, 0.006, "cannot be told"), (0.010, 0.002, "cannot be told")],
)  # fmt: skip
def test_an_error_is_compared_with_what_the_reference_can_tell(
    tmp_path: Path, mae: float, error: float, verdict: str
) -> None:
    lines = [line(f"k{k}", "ICG-I", k, mae, reference_error=error) for k in range(3)]
    assert verdicts(run_of(tmp_path, lines))["ICG-I has a mean L1 error of 0.015"] == verdict


def test_the_order_of_methods_and_who_does_not_converge(tmp_path: Path) -> None:
    lines = [line(f"i{k}", "ICG-I", k, 0.02) for k in range(4)]
    lines += [line(f"b{k}", "BPNN", k, 0.01) for k in range(4)]
    ended = ("budget spent", "diverged", "at rest", "at rest")
    lines += [line(f"l{k}", "LBP", k, 0.2, status) for k, status in enumerate(ended)]
    found = verdicts(run_of(tmp_path, lines))
    assert found["ICG-I has the least error of the paper's methods"] == "**does not hold**"
    assert found["LBP does not converge"] == "holds"
    more = [*lines, line("l4", "LBP", 4, 0.2), line("l5", "LBP", 5, 0.2)]
    assert verdicts(run_of(tmp_path / "more", more))["LBP does not converge"] == "**does not hold**"


def test_of_an_answer_that_was_asked_anew_the_last_counts(tmp_path: Path) -> None:
    run = run_of(tmp_path, [line("old", "ICG-I", 0, 0.5), line("new", "ICG-I", 0, 0.01)])
    assert [x["key"] for x in run.lines()] == ["new"]


def test_an_ablation_needs_a_difference_that_is_seen(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    base = rng.uniform(0.05, 0.2, 9)
    worse, same = base + rng.uniform(0.1, 0.2, 9), base + rng.normal(0, 1e-3, 9)
    group = {"group": "Out of distribution", "asked": 2.0}
    lines = []
    for column, engine, values in (
        ("Full", "icgi:paper", base), ("Random order", "icgi:paper-random-order", worse),
        ("Static SPD", "icgi:paper-static", same),
    ):  # fmt: skip
        lines += [
            line(f"{column}{k}", column, k, float(v)) | group | {"engine": engine}
            for k, v in enumerate(values)
        ]
    found = verdicts(run_of(tmp_path, lines, "table3"))
    assert found["Random order is worse than full, 2.1 times the error"].startswith("holds (2.")
    seen = found["Static SPD is worse than full, 2.8 times the error"]
    p = min(1.0, len(TABLES["table3"].columns[1:]) * wilcoxon(base - same).pvalue)
    assert seen.startswith("no difference is seen (1")
    assert f"p = {p:.2g}" in seen


def test_marks_are_filled_and_everything_else_stays() -> None:
    page = "# A\n<!-- bench short -->\nold\n<!-- end of bench short -->\nB <!-- bench claims -->\n"
    new = refreshed(page, {"short": "| a |", "claims": "x"})
    assert new.startswith("# A\n<!-- bench short -->\n\n| a |\n")
    assert "old" not in new
    assert new.endswith("<!-- end of bench short -->\nB <!-- bench claims -->\n")
    assert refreshed(new, {"short": "| a |"}) == new


def test_weights_of_one_network_do_not_ask_another_anew() -> None:
    pytest.importorskip("torch")
    names = ("icgi:fast", "icgi:paper", "bpnn", "gnn-bp", "gnn-bp:published", "direct-gnn")
    assert len({identity(name) for name in names}) == len(names)
    assert identity("ensemble") == identity("direct-gnn")
    assert identity("lbp") == ""


def test_pages_show_what_the_kept_lines_say(tmp_path: Path) -> None:
    """Everything that `icgi bench render` writes is up to date."""
    kept = HERE / "benchmarks" / "results" / "bench"
    if not any(kept.glob("*-small.jsonl")):
        pytest.skip("no lines are kept")
    pages = tmp_path / "docs" / "bench"
    words = ["bench", "render", "--folder", str(kept), "-o", str(pages), "-q"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    for made in pages.glob("*.md"):
        if "uai22" in made.name:  # it prints a leader board that is not kept here
            continue
        there = (HERE / "docs" / "bench" / made.name).read_text(encoding="utf-8")
        assert made.read_text(encoding="utf-8") == there, f"{made.name}: icgi bench render"


def test_numbers_of_the_short_comparison_are_means_of_the_kept_lines() -> None:
    run = Run(TABLES["table1"], "small", HERE / "benchmarks" / "results" / "bench")
    lines = [x for x in run.lines() if x.get("column") == "ttve" and x.get("mae") is not None]
    if not lines:
        pytest.skip("no lines are kept")
    shown = {row[0]: row for row in short({"table1": run}).rows}
    where = short({"table1": run}).header.index("ttve")
    for group in {x["group"] for x in lines}:
        mean = np.mean([x["mae"] for x in lines if x["group"] == group])
        assert float(shown[group][where].split()[0]) == pytest.approx(mean, abs=1e-4)
    assert counted(claims({"table1": run}))
    assert set(sections([run])) == {"short", "claims", "first page"}
