import json
import math
import subprocess
import sys
import time

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import icgi
import zoo
from icgi.exact.enumeration import Enumerate
from icgi.inference import Budget
from icgi.model.findings import resolve


def sprinkler() -> icgi.FactorGraph:
    return icgi.from_factors(
        [
            (["rain"], [0.8, 0.2]),
            (["rain", "sprinkler"], [[0.6, 0.4], [0.99, 0.01]]),
            (["sprinkler", "rain", "grass"], [[[1, 0], [0.2, 0.8]], [[0.1, 0.9], [0.01, 0.99]]]),
        ],
        states={"rain": ("no", "yes"), "grass": ("dry", "wet")},
    )


def test_a_textbook_network() -> None:
    """P(rain | grass wet) by hand: Σ_s P(r) P(s|r) P(wet|s,r)."""
    answer = icgi.marginals(sprinkler(), {"grass": "wet"})
    rain = 0.2 * (0.99 * 0.8 + 0.01 * 0.99)
    dry = 0.8 * (0.6 * 0.0 + 0.4 * 0.9)
    assert answer["rain"][1] == pytest.approx(rain / (rain + dry), abs=1e-12)
    assert answer.log_z == pytest.approx(np.log(rain + dry), abs=1e-12)
    assert answer["grass"].tolist() == [0.0, 1.0]
    assert answer.status is icgi.Status.EXACT
    assert answer.top(1)[0][0] in ("rain", "sprinkler")


def test_answers_are_indexed_by_name_and_number() -> None:
    answer = icgi.marginals(sprinkler())
    assert_allclose(answer["rain"], answer[0])
    assert len(list(answer)) == len(answer) == 3
    with pytest.raises(KeyError, match="no variable 'snow'; there are: rain, sprinkler, grass"):
        answer["snow"]
    with pytest.raises(KeyError, match="did you mean 'sprinkler'"):
        answer["sprinkle"]
    with pytest.raises(IndexError):
        answer[3]


def test_evidence_that_is_almost_right_is_explained_by_names() -> None:
    for evidence, message in (
        ({"gras": "wet"}, r"unknown variable 'gras' \(did you mean 'grass'\?\)"),
        ({"grass": "wett"}, r"grass the unknown state 'wett' \(did you mean 'wet'\?\); its .* dry"),
        ({"grass": 2}, r"variable grass the state 2, but it has states 0 to 1 \(dry, wet\)"),
        ({7: "wet"}, "names variable 7"),
    ):
        with pytest.raises(icgi.EvidenceError, match=message):
            icgi.marginals(sprinkler(), evidence)


def test_entropy_and_order_of_uncertainty() -> None:
    answer = icgi.marginals(
        icgi.from_factors([([0], [0.5, 0.5]), ([1], [0.9, 0.1]), ([2], [1, 0])])
    )
    assert_allclose(answer.entropy(), [1.0, 0.4689956, 0.0], atol=1e-6)
    assert answer.by_uncertainty().tolist() == [0, 1, 2]


def test_every_form_of_saving(tmp_path) -> None:
    import pandas as pd

    from icgi.model.formats.uai import read_marginals

    answer = icgi.marginals(sprinkler(), {"grass": "wet"})
    for ending in ("MAR", "json", "csv", "parquet"):
        answer.save(tmp_path / f"a.{ending}")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.MAR", "a.csv", "a.json", "a.parquet"]
    for row, given in zip(read_marginals(tmp_path / "a.MAR"), answer, strict=True):
        assert_allclose(row, given, atol=1e-10)
    stored = json.loads((tmp_path / "a.json").read_text())
    assert stored["marginals"][0]["probabilities"]["yes"] == pytest.approx(answer["rain"][1])
    assert stored["evidence"] == {"grass": "wet"}
    frame = answer.to_frame()
    for table in (pd.read_csv(tmp_path / "a.csv"), pd.read_parquet(tmp_path / "a.parquet")):
        assert_allclose(table["probability"], frame["probability"])
        assert list(table["name"]) == ["rain"] * 2 + ["sprinkler"] * 2 + ["grass"] * 2
    assert "rain" in answer._repr_html_()
    assert "exact" in repr(answer)


def test_saving_nowhere_is_explained(tmp_path) -> None:
    answer = icgi.marginals(sprinkler())
    with pytest.raises(icgi.IcgiError, match="the ending should be"):
        answer.save(tmp_path / "a.xml")
    with pytest.raises(icgi.IcgiError, match="does not exist"):
        answer.save(tmp_path / "missing" / "a.MAR")
    assert not list(tmp_path.iterdir())


def test_html_escapes_names() -> None:
    answer = icgi.marginals(icgi.from_factors([(["<b>"], [0.5, 0.5])]))
    assert "<b>" not in answer._repr_html_().replace("<b>JunctionTree", "").replace("<b>Auto", "")


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ([([0], [[1.0]])], "table of 2 axes"),
        ([([0], [1.0, 1.0]), ([0], [1.0, 1.0, 1.0])], "an earlier factor 2"),
        ([([0], [1.0, -1.0])], "factor 0 has negative"),
        ([([0, 0], [[1.0]])], "twice"),
        ([([-1], [1.0, 1.0])], "count from 0"),
        ([([0], [1.0, np.nan])], "factor 0 has negative, infinite or NaN"),
        ([([0], ["a", "b"])], "table of factor 0 is no array of real numbers"),
        ([([0], [1.0]), ([0, 1], [[1.0, 2.0], [3.0]])], "table of factor 1 is no array"),
        ([([0], [])], "factor 0 gives variable 0 no states"),
        ([([10**12], [1.0, 1.0])], "dense array"),
        ([([[1]], [1.0])], "factor 0 is no pair"),
        ([(0, [1.0])], "factor 0 is no pair"),
        ([5], "factor 0 is no pair"),
        ([([1, "1"], [[1.0, 1.0]])], "two variables are called '1'"),
        ([(["a\x1b[31m"], [1.0])], r"a\\x1b\[31m, holds control characters"),
    ],
)
def test_wrong_factors_are_named(factors, words: str) -> None:
    with pytest.raises(icgi.ModelFormatError, match=words):
        icgi.from_factors(factors)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e301, -1e301])
def test_log_tables_hold_numbers_or_minus_infinity(bad: float) -> None:
    with pytest.raises(icgi.ModelFormatError, match="factor 1 has the log potential"):
        icgi.from_factors([([0], [0.0, -np.inf]), ([0], [0.0, bad])], log=True)


def test_tables_given_stay_the_callers() -> None:
    table = np.array([1.0, 3.0])
    for log in (False, True):
        model = icgi.from_factors([([0], table)], log=log)
        before = model.log_tables[0].copy()
        table[0] = 2.0
        assert_array_equal(model.log_tables[0], before)


def test_every_builder_makes_a_model_without_variables(tmp_path) -> None:
    icgi.save(icgi.from_factors([]), tmp_path / "none.uai")
    for model in (
        icgi.from_factors([]),
        icgi.from_factors([((), 2.0)]),
        icgi.from_ising(np.zeros((0, 0))),
        icgi.from_networkx(nx.Graph()),
        icgi.load(tmp_path / "none.uai"),
    ):
        assert model.n_variables == 0
        answer = icgi.marginals(model, engine="jt")
        assert answer.log_z == pytest.approx(np.log(2.0) if model.n_factors else 0.0)


def test_graphs_with_words_for_numbers_are_refused() -> None:
    graph = nx.Graph()
    graph.add_edge(0, 1, weight="strong")
    with pytest.raises(icgi.ModelFormatError, match="should be numbers"):
        icgi.from_networkx(graph)


def test_ising_from_matrix_and_graph_agree() -> None:
    rng = np.random.default_rng(0)
    graph = nx.gnp_random_graph(8, 0.5, seed=1)
    for _, _, data in graph.edges(data=True):
        data["weight"] = rng.normal()
    for _, data in graph.nodes(data=True):
        data["field"] = rng.normal()
    couplings = nx.to_numpy_array(graph)
    fields = np.array([graph.nodes[v]["field"] for v in graph])
    by_matrix = icgi.marginals(icgi.from_ising(couplings, fields, beta=0.7))
    by_graph = icgi.marginals(icgi.from_networkx(graph, beta=0.7))
    assert_allclose(by_matrix.probs, by_graph.probs, atol=1e-12)
    spins = 2 * ((np.arange(256)[:, None] >> np.arange(8)) & 1) - 1
    energy = 0.5 * np.einsum("si,ij,sj->s", spins, couplings, spins) + spins @ fields
    weight = np.exp(0.7 * energy)
    up = (weight[:, None] * (spins > 0)).sum(0) / weight.sum()
    assert_allclose(by_matrix.probs[:, 1], up, atol=1e-12)


def test_batches_equal_single_questions() -> None:
    model = zoo.MODELS["grid-3x3"]
    evidences = [None, {0: 1}, {4: 0, 8: 1}]
    for engine in ("auto", "jt", "enumerate"):
        batch = icgi.marginals_batch(model, evidences, engine)
        for evidence, answer in zip(evidences, batch, strict=True):
            single = icgi.marginals(model, evidence, engine)
            assert_allclose(answer.probs, single.probs, atol=1e-12)
            assert answer.log_z == pytest.approx(single.log_z)
    names = ["chain", "tree", "zeros"]
    many = icgi.marginals_batch([zoo.MODELS[n] for n in names], threads=1)
    for name, answer in zip(names, many, strict=True):
        assert_allclose(answer.probs, zoo.exact(name).probs, atol=1e-10)
    with pytest.raises(icgi.ModelFormatError, match="1 models but 2 evidences"):
        icgi.marginals_batch([model], [None, None])
    assert icgi.marginals_batch([]) == []


def test_exact_is_exact_within_the_budget_and_refuses_beyond() -> None:
    model = zoo.MODELS["grid-3x3"]
    assert icgi.marginals(model).status is icgi.Status.EXACT
    with pytest.raises(icgi.BudgetError, match="memory"):
        icgi.marginals(model, engine="exact", budget=icgi.Budget(table_bytes=8))
    with pytest.raises(icgi.BudgetError, match=r"seconds| s[ ;]"):
        icgi.marginals(model, engine="exact", budget=icgi.Budget(seconds=1e-9))
    rushed = icgi.marginals(model, budget=icgi.Budget(seconds=1e-9))
    assert rushed.status is not icgi.Status.EXACT
    assert np.allclose(rushed.probs.sum(1), 1.0)


def test_import_is_light() -> None:
    code = (
        "import sys, icgi; heavy = {'torch', 'numba', 'scipy', 'pandas'} & set(sys.modules); "
        "print(sorted(heavy)); icgi.FactorGraph; icgi.Status; "
        "print('torch' in sys.modules, set(icgi.__all__) <= set(dir(icgi)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split("\n")[:2] == ["[]", "False True"]


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = icgi.nothing_like_this


def test_intervals_hold_the_probability_at_the_level() -> None:
    model = icgi.from_factors([(["a"], [1.0, 3.0])])
    probs = np.array([[0.25, 0.75]])

    def interval(level: float, **known) -> tuple[np.ndarray, np.ndarray] | None:
        found = icgi.Marginals(probs, icgi.Status.CONVERGED, **known)
        return icgi.Answer(model, {}, found, "made up", 0.0).interval(level)

    assert interval(0.9) is None
    low, high = interval(0.6827, std_error=np.full((1, 2), 0.1))  # one standard deviation
    assert_allclose([low[0], high[0]], [[0.15, 0.65], [0.35, 0.85]], atol=1e-4)
    low, high = interval(0.5, concentration=np.array([[1.0, 1.0]]))  # Beta(1, 1) is uniform
    assert_allclose([low[0], high[0]], [[0.25, 0.25], [0.75, 0.75]], atol=1e-12)


def test_what_precedes_an_engine_counts_as_its_time(monkeypatch) -> None:
    """Findings are resolved and entered within the seconds that were asked for."""
    given = []

    def engine(model, budget, rng):
        given.append(budget.seconds)
        return Enumerate()(model, Budget(), rng)

    def slow(*arguments):
        time.sleep(0.2)
        return resolve(*arguments)

    monkeypatch.setattr("icgi.api.resolve", slow)
    icgi.marginals(sprinkler(), engine=engine, budget=Budget(seconds=60.0))
    icgi.marginals(sprinkler(), engine=engine)
    assert given[0] < 59.9
    assert given[1] == math.inf


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"evidence": {"rain": True}}, "its states are: no, yes"),
        ({"evidence": {"rain": 0.5}}, "whole number counted from 0"),
        ({"evidence": {"rain": None}}, "whole number counted from 0"),
        ({"evidence": {0.5: 1}}, "whole number counted from 0"),
        ({"evidence": ["rain"]}, "give a dictionary"),
        ({"engine": None}, "give a name such as 'auto'"),
        ({"budget": 5}, r"icgi.Budget\(seconds=5\)"),
        ({"budget": icgi.Budget(seconds="5")}, r"seconds='5'\): give a number"),
        ({"budget": icgi.Budget(seconds=float("nan"))}, "give a number"),
        ({"budget": icgi.Budget(iterations=-1)}, "give a number of at least 0"),
        ({"seed": "x"}, "give a whole number of at least 0"),
        ({"seed": -1}, "give a whole number of at least 0"),
    ],
)
def test_arguments_of_another_kind_say_what_is_needed(question, words: str) -> None:
    with pytest.raises(icgi.IcgiError, match=words):
        icgi.marginals(rain(), **question)


def rain() -> icgi.FactorGraph:
    table = [[0.9, 0.1], [0.2, 0.8]]
    return icgi.from_factors(
        [(("rain",), [0.7, 0.3]), (("rain", "grass"), table)],
        states={"rain": ["no", "yes"], "grass": ["dry", "wet"]},
    )


def test_whole_numbers_of_any_type_are_states() -> None:
    expected = icgi.marginals(rain(), {"rain": "yes"})["grass"]
    for state in (1, 1.0, np.int8(1), np.float32(1), "1"):
        assert icgi.marginals(rain(), {"rain": state})["grass"].tolist() == expected.tolist()
    nameless = icgi.from_ising([[0, 1], [1, 0]])
    assert icgi.marginals(nameless, {0: True})[0].tolist() == [0, 1]


def test_an_answer_is_a_dictionary_of_its_variables() -> None:
    answer = icgi.marginals(rain())
    assert "rain" in answer
    assert "snow" not in answer
    assert 1 in answer
    assert None not in answer
    assert {k: list(v) for k, v in dict(answer).items()} == {
        "rain": list(answer["rain"]), "grass": list(answer["grass"]),
    }  # fmt: skip
