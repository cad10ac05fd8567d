"""Batches: the same answers as one question at a time, whatever the engine and the threads."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import icgi
import zoo
from icgi.batch import run_batch
from icgi.errors import EvidenceError
from icgi.inference import infer

ENGINES = ["jt", "mf", "lbp", "lbp:restarts=5", "lbp:schedule=residual", "trbp", "gbp"]


def questions() -> list[tuple[icgi.FactorGraph, dict[int, int]]]:
    """Every model of the zoo, and again with evidence where a variable can be observed."""
    asked: list[tuple[icgi.FactorGraph, dict[int, int]]] = [(m, {}) for m in zoo.MODELS.values()]
    for name, model in zoo.MODELS.items():
        i = int(model.cards.argmax())
        asked.append((model, {i: int(zoo.exact(name).probs[i].argmax())}))
    return asked


@pytest.mark.parametrize("threads", [1, 2, None])
@pytest.mark.parametrize("engine", ENGINES)
def test_equals_one_by_one(engine: str, threads: int | None) -> None:
    asked, settings = questions(), zoo.engine_or_skip(engine)
    first, second = (np.random.default_rng(7) for _ in range(2))
    found = run_batch(asked, settings, zoo.BUDGET, first, threads)
    for answer, question, rng in zip(found, asked, second.spawn(len(asked)), strict=True):
        alone = infer(*question, settings, zoo.BUDGET, rng)
        assert_array_equal(answer.probs, alone.probs)
        assert answer.status is alone.status
        assert answer.log_z == pytest.approx(alone.log_z, rel=1e-12)
        assert (answer.model, answer.evidence) == question
        assert answer.engine == repr(settings)


def test_many_evidences_of_one_model() -> None:
    model = zoo.MODELS["grid-3x3"]
    evidences = [{i: x} for i in range(9) for x in range(2)]
    answers = icgi.marginals_batch(model, evidences, engine="lbp")
    for evidence, answer in zip(evidences, answers, strict=True):
        ((i, x),) = evidence.items()
        assert answer.probs[i, x] == 1.0
        assert_allclose(answer.probs, icgi.marginals(model, evidence, engine="lbp").probs)


@pytest.mark.parametrize("engine", ["lbp", "jt"])
def test_impossible_question_is_an_error(engine: str) -> None:
    blocked = icgi.from_factors([((0, 1), [[1.0, 0.0], [0.0, 1.0]])])
    with pytest.raises(EvidenceError):
        icgi.marginals_batch([zoo.MODELS["loop"], blocked], [{}, {0: 0, 1: 1}], engine=engine)


@pytest.mark.parametrize("engine", ["lbp", "jt"])
def test_of_nothing_is_nothing(engine: str) -> None:
    assert icgi.marginals_batch([], engine=engine) == []
