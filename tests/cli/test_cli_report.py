"""`icgi report`: saved answers as pages."""

from pathlib import Path


def test_one_answer_and_two(run, grid) -> None:
    run("marginals", "grid.uai", "-o", "a.json", "-q")
    run("marginals", "grid.uai", "-o", "b.MAR", "-q", "--engine", "mf")
    assert "report written to a.html" in run("report", "a.json").stderr
    assert "exact up to rounding." in Path("a.html").read_text()
    assert "report written to a-b.html" in run("report", "a.json", "b.MAR").stderr
    assert "Reliability" in Path("a-b.html").read_text()
    assert "page.html" in run("report", "b.MAR", "-o", "page.html", "--model", "grid.uai").stderr


def test_refusals_name_the_file(run, grid) -> None:
    assert "cannot read nothing.json" in run("report", "nothing.json", code=1).stderr
    assert "grid.uai" in run("report", "grid.uai", code=1).stderr
    run("marginals", "grid.uai", "-o", "a.json", "-q")
    assert "should be .html" in run("report", "a.json", "-o", "a.txt", code=1).stderr
    run("report", "a.json", "--level", 2, code=2)
