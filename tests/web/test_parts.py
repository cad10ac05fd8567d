"""What the viewer is given: laws of the payload, the drawing, the elimination, and the widget."""

import asyncio
import gzip
import json
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest
from web_models import asia

import icgi
import zoo
from icgi.elimination.engine import STEEP
from icgi.elimination.potentials import potentials
from icgi.engines import ENGINES
from icgi.errors import IcgiError, UnsupportedModelError
from icgi.inference import Status
from icgi.model.formats import FORMATS
from icgi.web import drawing, elimination, questions
from icgi.web.component import STATIC, bundle
from icgi.web.guard import Access, Guard
from icgi.web.limits import UPLOADS, predicted_bytes
from icgi.web.payload import ENGINE_WORDS, answer_facts, engine_name, guarantee, trust
from icgi.web.questions import Question
from icgi.web.worker import parse

CONNECTED = [n for n, m in zoo.MODELS.items() if any(len(s) > 1 for s in m.scopes)]


def test_every_engine_and_status_has_words() -> None:
    assert set(ENGINE_WORDS) == set(ENGINES)
    assert all(guarantee(status, 0.9, False).endswith(".") for status in Status)


@pytest.mark.parametrize("engine", ["jt", "lbp", "pt", "ttve"])
def test_readings_are_those_of_the_answer(engine) -> None:
    answer = icgi.marginals(asia(), {"xray": "yes"}, engine, icgi.Budget(iterations=100))
    found = answer_facts(answer, 0.8)
    assert found["engine_name"] == engine
    assert np.allclose([row["entropy"] for row in found["marginals"]], answer.entropy())
    band = answer.interval(0.8)
    for i, row in enumerate(found["marginals"]):
        assert row["observed"] == (i in answer.evidence)
        if "low" in row:
            assert np.allclose(list(row["low"].values()), band[0][i, :2])
    assert any("low" in r for r in found["marginals"]) == (engine == "pt" or band is not None)


def test_trust_never_exceeds_the_status() -> None:
    assert trust(Status.EXACT, None) == "exact"
    assert trust(Status.DIVERGED, 1e-9) == "doubtful"
    assert trust(Status.AT_REST, None) == "unknown"
    assert trust(Status.CONVERGED, 0.2) == "doubtful"
    assert trust(Status.CONVERGED, 0.01) == "good"
    assert engine_name("Nobody(x=1)") == "Nobody"


@pytest.mark.parametrize("name", zoo.MODELS)
def test_the_graph_is_that_of_the_factors(name) -> None:
    model = zoo.MODELS[name]
    found = drawing.graph(model)
    nodes = [int(node["variable"]) for node in found["nodes"]]
    edges = {tuple(sorted((nodes[a], nodes[b]))) for a, b in found["edges"]}
    assert edges == drawing.cliques(model.scopes)
    assert sorted(nodes) == list(range(model.n_variables))
    places = {(node["x"], node["y"]) for node in found["nodes"]}
    assert len(places) == model.n_variables
    assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in places)


def test_names_in_the_graph_do_not_cover_each_other() -> None:
    rng = np.random.default_rng(3)
    pairs = [(int(rng.integers(max(0, k - 6), k)), k) for k in range(1, 40)]
    model = icgi.from_factors(
        [((f"variable {a}", f"variable {b}"), np.ones((2, 2))) for a, b in pairs]
    )
    places = np.array([[node["x"], node["y"]] for node in drawing.graph(model)["nodes"]])
    width, height = 8 * 1.2 / 88, (2 * 14 / np.sqrt(40) + 2) / 88  # of eight small letters
    away = np.abs(places[:, None] - places)
    covered = (away[..., 0] < width) & (away[..., 1] < height)
    assert covered.sum() == len(places)  # each one itself
    assert places.min() >= 0
    assert places.max() <= 1


def test_a_neighbourhood_is_the_nearest_part() -> None:
    graph = nx.random_regular_graph(3, 400, seed=0)
    model = icgi.from_networkx(graph)
    found = drawing.graph(model, 7)
    chosen = [list(graph).index(int(node["variable"])) for node in found["nodes"]]
    assert len(chosen) == drawing.AROUND
    distance = nx.single_source_shortest_path_length(graph, list(graph)[7])
    far = max(distance[list(graph)[i]] for i in chosen)
    nearer = sum(d < far for d in distance.values())
    assert nearer <= len(chosen)
    assert not found["complete"]
    assert len(drawing.graph(model)["nodes"]) == drawing.AROUND  # too many for the whole


def fill_of(edges: set[frozenset[int]], order: list[int]) -> list[set[frozenset[int]]]:
    """Fill-in of an elimination, by its definition on sets."""
    made, edges = [], set(edges)
    for v in order:
        near = {u for e in edges if v in e for u in e} - {v}
        new = {frozenset((a, b)) for a in near for b in near if a < b} - edges
        edges = {e for e in edges | new if v not in e}
        made.append(new)
    return made


@pytest.mark.parametrize("name", CONNECTED)
@pytest.mark.parametrize("rank", [1, 64])
def test_an_elimination_has_its_fill_in_and_keeps_its_rank(name, rank) -> None:
    model = zoo.MODELS[name]
    found = elimination.trace(model, Question(), rank)
    steps = found["steps"]
    order = [step["variable"] for step in steps]
    assert sorted(order) == list(range(len(found["nodes"])))
    edges = {frozenset(edge) for edge in found["edges"]}
    assert [{frozenset(e) for e in step["fill"]} for step in steps] == fill_of(edges, order)
    for k, step in enumerate(steps):
        assert len(step["bonds"]) == max(len(step["train"]) - 1, 0)
        assert all(1 <= bond <= rank for bond in step["bonds"])
        assert set(step["train"]) <= set(order[k + 1 :])
        assert set(step["neighbours"]) <= set(step["train"])
    # nothing is cut in models as small as these; the digits of steep tables cancel all the same
    if rank == 64 and potentials(model).steepness <= STEEP:
        assert found["error"] < 1e-9
        assert found["log_z"] == pytest.approx(found["exact_log_z"], abs=1e-9)
        assert max(step["discarded"] for step in steps) < 1e-6


def test_what_cannot_be_drawn_says_why() -> None:
    with pytest.raises(UnsupportedModelError, match="nothing to eliminate"):
        elimination.trace(zoo.MODELS["one-variable"], Question())
    large = icgi.from_networkx(nx.path_graph(elimination.MOST + 1))
    with pytest.raises(UnsupportedModelError, match="observe some"):
        elimination.trace(large, Question())
    assert elimination.trace(large, Question({"3": "0"}))["left_out"] > 0


@pytest.mark.parametrize("variables", [["visit"], ["visit", "visit"], []])
def test_a_joint_needs_different_variables(variables) -> None:
    with pytest.raises(IcgiError, match=r"two or more|each once"):
        questions.joint(asia(), Question(), variables)


def test_predicted_memory_covers_text_and_marginals() -> None:
    assert predicted_bytes(b"MARKOV 3 2 2 2 0") < 10_000
    assert predicted_bytes(b"MARKOV 2 2 1000000000 0") > 10**10
    assert predicted_bytes(b"markov 999999999999 " + b"2 " * 50) > 10**12
    assert predicted_bytes(b"network x {}" * 1000) >= 12_000
    assert predicted_bytes(b'{"variables": [{"states": 4}, {"states": ["a"]}]}', "json") < 10_000
    assert predicted_bytes(b'{"variables": [{"states": 900000000}]}', "json") > 10**10
    assert predicted_bytes(b"%%MatrixMarket\n% x\n900000000 900000000 0\n", "mtx") > 10**10
    assert predicted_bytes(b"900000000 0\n", "gset") > 10**10


def test_uploads_are_the_formats_with_readers_of_our_own() -> None:
    own = {
        name.removeprefix(".")
        for name, each in FORMATS.items()
        if not each.read.startswith("agrum") and name not in (".xml", ".bifxml")
    }
    assert set(UPLOADS) == own
    page = (STATIC / "page.js").read_text()
    assert f"const FORMATS = {json.dumps(list(UPLOADS))};" in page


def test_a_bundle_is_one_module_of_all_files() -> None:
    for entry, parts in (("widget", 7), ("report", 7), ("page", 8)):
        text = bundle(entry)
        assert text.count("= (() => {") >= parts
        assert not any(line.startswith("import ") for line in text.splitlines())
        assert text.count("export") == text.count("export default") == (entry == "widget")


def test_nothing_is_loaded_from_elsewhere() -> None:
    for path in STATIC.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, path.name
        assert "innerHTML" not in text, path.name
        assert "eval(" not in text, path.name


def test_a_widget_answers_messages() -> None:
    view = icgi.view(asia(), {"smoker": "yes"}, seconds=5)
    sent = []
    view.send = lambda content, buffers=None: sent.append(content)
    ask = lambda **message: view._answer(view, {"id": 3, **message}, [])  # noqa: E731
    ask(what="marginals", question=view.question)
    assert sent[-1]["id"] == 3
    expected = icgi.marginals(asia(), {"smoker": "yes"})
    assert np.allclose(view.answer.probs, expected.probs)
    rows = sent[-1]["result"]["marginals"]
    assert np.allclose([list(r["probabilities"].values()) for r in rows], expected.probs)
    ask(what="graph", around="xray")
    assert sent[-1]["result"]["around"] == "xray"
    ask(what="marginals", question={"evidence": {"smoker": "sometimes"}})
    assert "its states are" in sent[-1]["error"]
    ask(what="joint", question={}, variables=["smoker", "xray"])
    assert sum(sent[-1]["result"]["table"]) == pytest.approx(1.0)
    ask(what="elimination", question={}, rank=2)
    assert len(sent[-1]["result"]["steps"]) == 8
    assert view.evidence == {"smoker": "yes"}


def test_without_the_extra_the_refusal_says_how_to_install_it() -> None:
    code = (
        "import sys; sys.modules['anywidget'] = None; import icgi\n"
        "try: icgi.view(icgi.from_factors([(('a',), [1, 2])]))\n"
        "except icgi.IcgiError as refused: print(refused)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "install it with: pip install" in out.stdout
    assert "[web]" in out.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space")
def test_a_worker_cannot_grow_beyond_its_memory() -> None:
    code = (
        "import numpy as np; from icgi.web.worker import limit_memory\n"
        "limit_memory(100_000_000); small = np.ones(5_000_000)\n"
        "try: np.ones(50_000_000)\n"
        "except MemoryError: print('refused')"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "refused\n"


def test_a_worker_reads_what_load_reads(tmp_path) -> None:
    icgi.save(asia(), tmp_path / "a.uai")
    content = (tmp_path / "a.uai").read_bytes()
    for suffix, packed in ((".uai", content), (".uai.gz", gzip.compress(content)), ("", content)):
        assert parse(suffix, packed).cards.tolist() == [2] * 8
    with pytest.raises(icgi.IcgiError, match=r"^model\.bif"):
        parse(".bif", content)


@pytest.mark.parametrize("piece", [b"x", b"x" * 40])
def test_a_body_that_trickles_in_or_goes_on_is_refused(piece) -> None:
    async def app(scope, receive, send) -> None:
        while (await receive()).get("more_body"):
            pass

    async def trickle():
        await asyncio.sleep(0.05)
        return {"type": "http.request", "body": piece, "more_body": True}

    async def keep(message) -> None:
        sent.append(message)

    sent: list[dict] = []
    guard = Guard(app, Access(body_seconds=0.3), lambda path: 100)
    scope = {"type": "http", "path": "/", "method": "POST", "query_string": b"",
             "headers": [(b"host", b"localhost")]}  # fmt: skip
    asyncio.run(guard(scope, trickle, keep))
    assert sent[0]["status"] == (408 if len(piece) == 1 else 413)
