"""Pages of answers: everything needed to repeat and to judge them, and nothing that can run."""

import json
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose

import icgi
import zoo
from icgi.errors import IcgiError
from icgi.report.compare import comparison
from icgi.report.html import page
from icgi.report.reliability import coverage
from icgi.report.saved import read_answer
from icgi.web.payload import answer_facts

NASTY = "</script><script>alert(1)</script>"


def data(text: str) -> list[dict]:
    found = re.search(r"<script type=application/json id=answer>(.*?)</script>", text, re.S)
    return json.loads(found[1])


def nasty() -> icgi.Answer:
    model = icgi.from_factors([((NASTY, "b"), [[1, 2], [3, 4]])], states={"b": ("<i>", '"q"')})
    return icgi.marginals(model, {NASTY: 1})


def test_a_page_holds_the_answer_itself() -> None:
    answer = icgi.marginals(zoo.MODELS["loop"], engine="pt", budget=icgi.Budget(iterations=50))
    text = page(answer, "loop", 0.8)
    (found,) = data(text)
    rows = {row["variable"]: row for row in found["marginals"]}
    for i in range(len(answer)):
        assert_allclose(list(rows[str(i)]["probabilities"].values()), answer[i])
    low, high = answer.interval(0.8)
    assert_allclose([rows["0"]["low"]["0"], rows["0"]["high"]["0"]], [low[0, 0], high[0, 0]])
    assert f"left:{100 * low[0, 0]:.2f}%" in text
    assert text.count("class=band") == 8
    assert "sampling by parallel tempering" in text


def test_names_are_text() -> None:
    answer = nasty()
    for text in (page(answer, NASTY), comparison(*[answer_facts(answer)] * 2, (NASTY, "b"))):
        assert "<script>alert" not in text
        assert text.count("</script>") == 2
        assert "&lt;i&gt;" in text
        assert any(row["variable"] == NASTY for row in data(text)[0]["marginals"])


def test_only_the_one_script_may_run() -> None:
    import base64
    import hashlib

    text = page(nasty(), "x")
    script = re.search(r"<script type=module>(.*?)</script>", text, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text


@pytest.mark.parametrize("engine", ["auto", "pt"])
def test_saved_answers_come_back(tmp_path, engine) -> None:
    answer = icgi.marginals(asked := zoo.MODELS["zeros"], {0: 0}, engine,
                            icgi.Budget(iterations=50))  # fmt: skip
    answer.save(tmp_path / "a.json")
    answer.save(tmp_path / "a.MAR")
    fresh = answer_facts(answer)
    for name, model in (("a.json", None), ("a.MAR", asked)):
        found = read_answer(tmp_path / name, model)
        for new, old in zip(found["marginals"], fresh["marginals"], strict=True):
            assert new["variable"] == old["variable"]
            assert_allclose(*(list(r["probabilities"].values()) for r in (new, old)), atol=1e-6)
    found = read_answer(tmp_path / "a.json")
    assert [r["trust"] for r in found["marginals"]] == [r["trust"] for r in fresh["marginals"]]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"status": "exact", "engine": 3}', '{"status": "sure"}', "[" * 100_000,
     '{"status": "exact", "engine": "A", "advice": "", "evidence": {}, "marginals": '
     '[{"variable": "a", "probabilities": {"0": "<b>"}}]}'],
)  # fmt: skip
def test_other_files_are_refused_by_name(tmp_path, text) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(IcgiError, match=r"a\.json"):
        read_answer(tmp_path / "a.json")


def test_a_comparison_measures_what_icgi_check_measures() -> None:
    model = zoo.MODELS["grid-3x3"]
    exact, other = (icgi.marginals(model, engine=e) for e in ("jt", "mf"))
    text = comparison(answer_facts(other), answer_facts(exact), ("mf", "jt"))
    apart = np.abs(exact.probs - other.probs)
    assert f"<td class=number>{apart.sum(1).mean():.3g}</td>" in text
    assert f"<td class=number>{apart.max():.3g}</td>" in text
    first = data(text)[0]["marginals"][0]["variable"]
    assert int(first) == int(apart.sum(1).argmax())


def test_coverage_is_that_of_the_bands() -> None:
    model = zoo.MODELS["grid-3x3"]
    exact = icgi.marginals(model)
    rough = icgi.marginals(model, engine="pt", budget=icgi.Budget(iterations=30))
    text = comparison(answer_facts(rough), answer_facts(exact), ("pt", "jt"))
    low, high = rough.interval(0.9)
    inside = ((low <= exact.probs) & (exact.probs <= high)).mean()
    assert f"<th scope=row>90 %</th><td class=number>{100 * inside:.1f} %</td>" in text


def test_answers_to_different_models_are_not_compared() -> None:
    loop, grid = (answer_facts(icgi.marginals(zoo.MODELS[m])) for m in ("loop", "grid-3x3"))
    with pytest.raises(IcgiError, match="different variables"):
        comparison(loop, grid, ("a", "b"))


def test_soft_evidence_is_shown_and_other_questions_are_not_compared_in_silence(tmp_path) -> None:
    model = zoo.MODELS["mixed-cards"]
    card = int(model.cards[1])
    answers = [
        icgi.marginals(model, {0: 0}, likelihood={1: [1.0, *[0.5] * (card - 1)]}, exclude={2: 0}),
        icgi.marginals(model, {0: 0}),
        icgi.marginals(zoo.MODELS["mixed-cards"], {0: 0}),
    ]
    for k, answer in enumerate(answers):
        answer.save(tmp_path / f"{k}.json")
    soft, plain, again = (read_answer(tmp_path / f"{k}.json") for k in range(3))
    assert "1 likely (0: 1, 1: 0.5" in page(answers[0], "x")
    text = comparison(soft, plain, ("soft", "plain"))
    assert "1 likely (0: 1, 1: 0.5" in text
    assert "2 ≠ 0" in text
    assert "other evidence (only in the first" in text
    assert "need not agree" not in comparison(plain, again, ("plain", "again"))
    other = read_answer(tmp_path / "1.json")
    other["model"]["sha256"] = "0"
    assert "models of other numbers" in comparison(plain, other, ("plain", "other"))


def test_promised_and_kept_is_drawn_from_the_least_number_on() -> None:
    drawn = coverage((0.8, 0.9, 0.95), (0.74, 0.93, -1.0), (0.8, 0.92, 0.96))
    assert ">0.7</text>" in drawn
    dots = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', drawn)
    assert len(dots) == 5  # what has no threshold is left out
    assert all(30 <= float(x) <= 250 and 10 <= float(y) <= 230 for x, y in dots)
    below = [float(x) - 30 + float(y) - 10 < 219 for x, y in dots]
    assert below == [False, True, False, True, True]  # above the diagonal where it was kept
