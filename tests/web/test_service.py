"""The HTTP service in process: the same answers as the library, limits kept, nothing let in."""

import itertools
import json
import time

import numpy as np
import pytest
from starlette.testclient import TestClient
from web_models import LIMITS, asia, served

import icgi
from icgi.model.graph import state_names
from icgi.web.app import Served, create_app
from icgi.web.guard import Access
from icgi.web.store import QUEUED, RUNNING, Job, Store

SMALL = b"MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 2 3 4\n"


def ask(client, model, kind="marginals", wait=10, code=200, **question):
    found = client.post(f"/{kind}?wait={wait}", json={"model": model, **question})
    assert found.status_code == code, found.text
    return found.json()


def probabilities(job) -> list[list[float]]:
    return [list(row["probabilities"].values()) for row in job["result"]["marginals"]]


def until(client, job: str, *states: str):
    for _ in range(1200):
        found = client.get(f"/jobs/{job}").json()
        if found["state"] in states:
            return found
        time.sleep(0.05)
    raise AssertionError(found["state"])


@pytest.mark.parametrize(
    "evidence", [{}, {"visit": "yes"}, {"xray": "yes", "smoker": "no"}, {"0": "1"}]
)
def test_answers_are_those_of_the_library(client, model, evidence) -> None:
    job = ask(client, model, evidence=evidence)
    assert np.allclose(probabilities(job), icgi.marginals(asia(), evidence).probs)
    assert job["result"]["status"] == "exact"
    assert {row["trust"] for row in job["result"]["marginals"]} <= {"exact", "observed"}


def test_soft_evidence_and_exclusion_are_bayes_rule(client, model) -> None:
    prior = {r["variable"]: r["probabilities"] for r in ask(client, model)["result"]["marginals"]}
    job = ask(client, model, likelihood={"smoker": [1.0, 0.25]}, exclude={"xray": ["yes"]})
    whole = icgi.from_factors([*factors(asia()), (("smoker",), [1, 0.25]), (("xray",), [0, 1])])
    assert np.allclose(probabilities(job), icgi.marginals(whole).probs)
    assert prior["smoker"]["yes"] == pytest.approx(0.5)


def factors(model: icgi.FactorGraph):
    names = model.names
    return [
        (tuple(names[i] for i in scope), np.exp(table))
        for scope, table in zip(model.scopes, model.log_tables, strict=True)
    ]


def test_a_joint_has_the_marginals_and_the_enumerated_cells(client, model) -> None:
    names = ["either", "smoker", "xray"]
    found = ask(client, model, "joint", variables=names, evidence={"breathless": "yes"})["result"]
    table = np.array(found["table"]).reshape(2, 2, 2)
    graph = asia()
    which = [graph.names.index(name) for name in names]
    wanted = np.zeros((2, 2, 2))
    for states in itertools.product(*map(range, graph.cards.tolist())):
        if states[graph.names.index("breathless")] == 0:
            logs = (
                t[tuple(states[i] for i in scope)]
                for scope, t in zip(graph.scopes, graph.log_tables, strict=True)
            )
            wanted[tuple(states[i] for i in which)] += np.exp(sum(logs))
    assert np.allclose(table, wanted / wanted.sum())
    assert found["states"] == [list(state_names(graph, i)) for i in which]


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"evidence": {"vist": "yes"}}, "did you mean"),
        ({"evidence": {"visit": "maybe"}}, "its states are"),
        ({"evidence": {"either": "no", "cancer": "yes"}}, "contradict"),
        ({"engine": "lpb"}, "did you mean"),
        ({"engine": "icgi:device=/dev/sda"}, "cannot be set from outside"),
        ({"likelihood": {"visit": [1.0]}}, "one for each"),
        ({"likelihood": {"visit": [0.0, 0.0]}}, "not zero everywhere"),
        ({"exclude": {"visit": ["yes", "no"]}}, "leave one"),
        ({"exclude": {"99": ["yes"]}}, "has variables 0 to 7"),
    ],
)
def test_a_wrong_question_says_what_to_repair(client, model, question, words) -> None:
    assert words in ask(client, model, code=422, **question)["detail"]


def test_what_does_not_fit_is_refused_before_it_runs(client, model) -> None:
    assert "2 GB" in ask(client, model, code=413, memory_bytes=2_000_000_000)["detail"]
    assert "gives 10 s" in ask(client, model, code=413, seconds=1000.0)["detail"]
    many = {f"v{i}": "x" * 100 for i in range(400)}
    assert ask(client, model, code=413, evidence=many)["detail"]
    assert client.post("/models", content=b"x" * 200_001).status_code == 413
    states = b"MARKOV 2 2 2000000000 0"
    assert "256 GB" in client.post("/models", content=states).json()["detail"]


def test_models_come_and_go(client) -> None:
    added = client.post("/models?name=a%3Cb%3E", content=SMALL)
    assert added.status_code == 201
    ident = added.json()["id"]
    assert client.post("/models?name=again", content=SMALL).json()["id"] == ident
    assert client.get(f"/models/{ident}").json()["variables"][0] == {
        "name": "0",
        "states": ["0", "1"],
    }
    assert np.allclose(probabilities(ask(client, ident)), [[0.3, 0.7], [0.4, 0.6]])
    assert client.delete(f"/models/{ident}").status_code == 204
    assert client.get(f"/models/{ident}").status_code == 404
    assert client.post("/marginals", json={"model": ident}).status_code == 404
    wrong = client.post("/models", content=b"MARKOV\n2\n2 2\n1\n2 0 5\n4\n1 2 3 4\n")
    assert wrong.status_code == 422
    assert len(client.get("/models").json()) == 1


@pytest.mark.parametrize("form", ["bif", "xmlbif", "json", "mtx", "gset"])
def test_models_come_in_every_format_of_our_own(client, tmp_path, form) -> None:
    if form == "gset":
        content, states = b"2 1\n1 2 1.0\n", ["0", "1"]
    else:
        kept = icgi.from_ising([[0, 0.5], [0.5, 0]]) if form == "mtx" else asia()
        icgi.save(kept, tmp_path / f"model.{form}.gz")
        content = (tmp_path / f"model.{form}.gz").read_bytes()
        states = ["0", "1"] if form == "mtx" else list(kept.states[0])
    added = client.post(f"/models?name=x&format={form}", content=content)
    assert added.status_code == 201, added.text
    assert added.json()["variables"][0]["states"] == states
    assert client.delete(f"/models/{added.json()['id']}").status_code == 204
    wrong = client.post(f"/models?name=x&format={form}", content=b"{ nonsense")
    assert wrong.status_code == 422
    assert "model." in wrong.json()["detail"]


def test_a_served_model_stays(client, model) -> None:
    assert client.delete(f"/models/{model}").status_code == 409


def test_a_long_question_is_a_job_that_reports_and_can_be_cancelled(client, model) -> None:
    job = ask(client, model, wait=0, code=202, engine="pt", seconds=9.0, seed=1)
    assert until(client, job["id"], "running")["result"] is None
    began = time.monotonic()
    client.delete(f"/jobs/{job['id']}")
    ended = client.get(f"/jobs/{job['id']}?wait=8").json()
    assert ended["state"] == "cancelled"
    assert time.monotonic() - began < 6
    lines = client.get(f"/jobs/{job['id']}/events").text.splitlines()
    assert lines[0] == "event: job"
    assert json.loads(lines[1].removeprefix("data: ")) == ended
    assert ask(client, model, evidence={"smoker": "yes"})["state"] == "done"


def test_a_question_whose_worker_dies_gets_another(client, model) -> None:
    job = ask(client, model, wait=0, code=202, engine="pt", seconds=2.0, seed=4)
    until(client, job["id"], "running")
    (worker,) = [w for w in client.jobs._at_work.values() if w.job == job["id"]]
    worker.process.kill()
    assert until(client, job["id"], "done")["result"]["engine_name"] == "pt"


def test_short_questions_do_not_wait_for_long_ones(client, model) -> None:
    long = [ask(client, model, wait=0, code=202, engine="pt", seconds=9.0, seed=s) for s in (2, 3)]
    began = time.monotonic()
    ask(client, model, evidence={"bronchitis": "yes"}, seconds=1.0)
    assert time.monotonic() - began < 5
    for job in long:
        client.delete(f"/jobs/{job['id']}")
    for job in long:
        assert client.get(f"/jobs/{job['id']}?wait=9").json()["state"] == "cancelled"


def test_a_full_queue_says_when_to_come_back(client, model) -> None:
    jobs, refused = [], None
    for seed in range(100, 100 + LIMITS.queue + LIMITS.workers + 2):
        asked = {"model": model, "engine": "pt", "seconds": 9.0, "seed": seed}
        found = client.post("/marginals?wait=0", json=asked)
        if found.status_code == 429:
            refused = found
            break
        jobs.append(found.json()["id"])
    for job in jobs:
        client.delete(f"/jobs/{job}")
    assert refused is not None
    assert int(refused.headers["retry-after"]) >= 1
    for job in jobs:
        assert client.get(f"/jobs/{job}?wait=9").json()["state"] == "cancelled"


def test_the_same_question_is_answered_from_the_store(client, model) -> None:
    first = ask(client, model, evidence={"cancer": "yes"})
    assert ask(client, model, evidence={"cancer": "yes"})["id"] == first["id"]
    assert ask(client, model, evidence={"cancer": "yes"}, seed=7)["id"] != first["id"]


def test_graph_and_elimination_name_the_variables(client, model) -> None:
    found = client.get(f"/models/{model}/graph").json()
    names = [node["variable"] for node in found["nodes"]]
    assert sorted(names) == sorted(asia().names)
    assert all(0 <= node[axis] <= 1 for node in found["nodes"] for axis in "xy")
    near = client.get(f"/models/{model}/graph?around=visit").json()
    assert near["nodes"][0]["variable"] == "visit"
    trace = client.post(f"/models/{model}/elimination?rank=2", json={"model": model}).json()
    assert sorted(step["variable"] for step in trace["steps"]) == list(range(8))
    assert client.get(f"/models/{model}/graph?around=nobody").status_code == 422


def test_pages_and_their_parts_come_from_here(client) -> None:
    for path in ("/", "/docs", "/openapi.json", "/engines", "/health"):
        found = client.get(path)
        assert found.status_code == 200
        assert "script-src 'self'" in found.headers["content-security-policy"]
        assert found.headers["x-content-type-options"] == "nosniff"
        assert "://" not in found.text.replace("http://www.w3.org/2000/svg", "")
    for name in ("..%2fapp.py", "app.py", "index.html%00"):
        assert client.get(f"/static/{name}").status_code == 404


def test_other_hosts_and_origins_are_refused(client, model) -> None:
    assert client.get("/models", headers={"host": "evil.example"}).status_code == 421
    assert client.get("/models", headers={"host": "localhost:99"}).status_code == 200
    asked = {"model": model}
    for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert client.post("/marginals", json=asked, headers=headers).status_code == 403
    assert client.post("/models", content=SMALL, headers={"origin": "null"}).status_code == 403


def test_with_a_token_nothing_is_told_without_it(tmp_path) -> None:
    secret = "abcdefghijklmnop"
    app = create_app([], tmp_path / "s.sqlite", LIMITS, Access(("localhost",), secret))
    client = TestClient(app, base_url="http://localhost")  # the workers are not started
    for path in ("/", "/docs", "/openapi.json", "/static/viewer.js", "/nothing", "/?token=wrong"):
        assert client.get(path).status_code == 401
    known = {"authorization": f"Bearer {secret}"}
    assert client.get("/engines", headers=known).status_code == 200
    welcome = client.get(f"/?token={secret}", follow_redirects=False)
    assert welcome.status_code == 303
    assert "HttpOnly; SameSite=Strict" in welcome.headers["set-cookie"]
    assert client.get("/engines").status_code == 200  # the cookie


CHAIN = b'{"icgi": 1, "variables": [{"name": "a", "states": 2}], "factors": []}'


def job_of(ident: str, state: str) -> Job:
    return Job(ident, "k", "marginals", "m", state, 0.0, None, None, {}, None, None, None)


def test_what_was_at_work_when_the_service_died_is_tried_once_more(tmp_path) -> None:
    path = tmp_path / "s.sqlite"
    for attempt in (1, 2):
        store = Store(path)
        if attempt == 1:
            store.add_job(job_of("a", QUEUED))
        assert [ident for ident, _ in store.waiting()] == ["a"]
        store.start("a")
        assert store.job("a").state == RUNNING
        store.close()
    store = Store(path)
    assert store.job("a").state == "failed"
    with pytest.raises(icgi.IcgiError, match="another service"):
        Store(path)
    store.close()


def test_answers_survive_a_restart(tmp_path) -> None:
    path = tmp_path / "s.sqlite"
    jobs = []
    for _ in range(2):
        with TestClient(create_app(served(), path, LIMITS), base_url="http://localhost") as client:
            while not (found := client.get("/models").json()):
                time.sleep(0.05)
            jobs.append(ask(client, found[0]["id"], evidence={"smoker": "no"}))
    assert jobs[0] == jobs[1]


def test_models_of_an_earlier_service_come_last_and_can_go(tmp_path) -> None:
    path = tmp_path / "s.sqlite"
    other = Served("chain", ".json", CHAIN)
    for given, names in ((served(), ["asia"]), ([other], ["chain", "asia"])):
        with TestClient(create_app(given, path, LIMITS), base_url="http://localhost") as client:
            while len(found := client.get("/models").json()) < len(names):
                time.sleep(0.05)
            assert [model["name"] for model in found] == names
            assert [model["served"] for model in found] == [True, False][: len(names)]
            last = client.delete(f"/models/{found[-1]['id']}").status_code
            assert last == (409 if len(names) == 1 else 204)


def test_a_model_that_cannot_be_read_is_named_in_the_log(tmp_path, caplog) -> None:
    broken = Served("broken", ".uai", b"MARKOV nonsense")
    app = create_app([broken, *served()], tmp_path / "s.sqlite", LIMITS)
    with TestClient(app, base_url="http://localhost") as client:
        while not (found := client.get("/models").json()):
            time.sleep(0.05)
    assert [model["name"] for model in found] == ["asia"]
    assert "broken cannot be served: " in caplog.text


def test_old_answers_make_room(tmp_path) -> None:
    store = Store(tmp_path / "s.sqlite")
    for k in range(9):
        store.add_job(job_of(f"j{k}", QUEUED))
        store.end(f"j{k}", "done", result={})
    store.add_job(job_of("waits", QUEUED))
    store.prune(4, 2**30)
    assert store.counts() == {"queued": 1, "running": 0, "done": 4, "failed": 0, "cancelled": 0}
    store.prune(4, 0)
    assert store.counts()["done"] == 2
    assert store.job("waits") is not None
    store.close()
