"""The viewer in Chromium, clicked through at the sizes of a desk and of a phone."""

import json

import numpy as np
import pytest
from browser import SIZES, chromium, no_overflow, service, watched
from web_models import LIMITS, asia, bif

import icgi
from icgi.report import html
from icgi.report.compare import comparison
from icgi.web.app import Served, create_app
from icgi.web.payload import answer_facts

pytestmark = pytest.mark.slow
NASTY = '<img src=x onerror="document.title=1">'


def nasty() -> icgi.FactorGraph:
    """Names that are markup, a key of every object, and very long."""
    return icgi.from_factors(
        [((NASTY, "__proto__"), [[1, 2], [3, 4]]), (("__proto__", "x" * 300), [[1, 2], [2, 1]])],
        states={NASTY: ("constructor", "</script>")},
    )


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    app = create_app(
        [Served("asia", ".bif", bif(asia()))], tmp_path_factory.mktemp("v") / "s.sqlite", LIMITS
    )
    with service(app) as found:
        yield found


@pytest.fixture(params=SIZES)
def page(request, browser, address):
    made = watched(browser, request.param)
    made.size = request.param
    made.goto(address)
    settled(made)
    yield made
    assert made.troubles == []
    assert no_overflow(made)
    made.close()


def settled(page) -> None:
    page.wait_for_selector(".icgi[aria-busy=false] .variable .bar", timeout=60_000)


def bar(page, name: str, state: str):
    return page.get_by_role("button", name=f"{name} = {state}, ")


def shown(page) -> dict[str, list[float]]:
    """Probability of each state as the bars are drawn."""
    found = page.evaluate(
        """() => [...document.querySelectorAll('.variable')].map(v => [
             v.querySelector('.name').textContent,
             [...v.querySelectorAll('.fill')].map(f => parseFloat(f.style.width) / 100)])"""
    )
    return dict(found)


def agree(page, **question) -> bool:
    answer = icgi.marginals(asia(), question.get("evidence"))
    drawn = shown(page)
    names = answer.model.names
    return all(np.allclose(drawn[name], answer[name], atol=1e-4) for name in names)


def tab(page, name: str) -> None:
    page.get_by_role("tab", name=name).click()


def test_observe_retract_and_undo(page) -> None:
    assert agree(page)
    bar(page, "smoker", "yes").click()
    settled(page)
    assert agree(page, evidence={"smoker": "yes"})
    assert "P(evidence) = 0.5." in page.locator(".status").inner_text()
    assert "is.smoker=yes" in page.url
    bar(page, "xray", "yes").click()
    settled(page)
    assert agree(page, evidence={"smoker": "yes", "xray": "yes"})
    bar(page, "smoker", "yes").click()  # again: retracted
    settled(page)
    assert agree(page, evidence={"xray": "yes"})
    page.get_by_role("button", name="Undo").click()
    settled(page)
    assert agree(page, evidence={"smoker": "yes", "xray": "yes"})
    page.reload()
    settled(page)
    assert agree(page, evidence={"smoker": "yes", "xray": "yes"})
    page.get_by_role("button", name="Reset").click()
    settled(page)
    assert agree(page)
    assert "is." not in page.url


def test_soft_evidence_lands_where_it_is_dropped(page) -> None:
    track = bar(page, "smoker", "yes").locator(".track")
    box = track.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.5, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, middle, steps=3)
    page.mouse.move(box["x"] + box["width"] * 0.8, middle, steps=3)
    page.mouse.up()
    settled(page)
    assert shown(page)["smoker"][0] == pytest.approx(0.8, abs=0.02)
    prior = icgi.marginals(asia(), {"smoker": "yes"})["cancer"][0]
    other = icgi.marginals(asia(), {"smoker": "no"})["cancer"][0]
    soft = shown(page)["smoker"][0]
    assert shown(page)["cancer"][0] == pytest.approx(soft * prior + (1 - soft) * other, abs=1e-4)
    assert "Weight of the evidence" in page.locator(".status").inner_text()
    assert "like.smoker=" in page.url


def test_keys_do_what_the_mouse_does(page) -> None:
    before = shown(page)["bronchitis"][0]
    bar(page, "bronchitis", "yes").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.get_by_role("button", name="take back bronchitis: soft").wait_for()
    settled(page)
    assert shown(page)["bronchitis"][0] == pytest.approx(before + 0.15, abs=1e-3)
    bar(page, "xray", "no").focus()
    page.keyboard.press("Delete")
    settled(page)
    assert shown(page)["xray"] == [1.0, 0.0]
    assert page.evaluate("document.activeElement.textContent").startswith("no")
    page.get_by_role("button", name="take back xray ≠ no").click()
    settled(page)
    bar(page, "smoker", "no").focus()
    page.keyboard.press("Enter")
    settled(page)
    assert shown(page)["smoker"] == [0.0, 1.0]


def test_excluding_is_conditioning_on_the_rest(page) -> None:
    page.get_by_role("button", name="exclude either = no").click()
    settled(page)
    assert agree(page, evidence={"either": "yes"})


def test_evidence_without_possible_world_is_said_and_undone(page) -> None:
    bar(page, "either", "no").click()
    settled(page)
    bar(page, "cancer", "yes").click()
    page.get_by_role("alert").filter(has_text="contradict each other").wait_for()
    page.troubles.clear()  # the browser reports the 422
    assert "stale" in page.locator(".icgi").first.get_attribute("class")
    page.get_by_role("button", name="Undo").click()
    settled(page)
    assert agree(page, evidence={"either": "no"})


def test_joint_table(page) -> None:
    bar(page, "breathless", "yes").click()
    settled(page)
    tab(page, "joint")
    page.get_by_label("Variable 1 of the joint").select_option("smoker")
    page.get_by_label("Variable 2 of the joint").select_option("bronchitis")
    page.get_by_role("button", name="Joint table").click()
    page.wait_for_selector(".heat")
    cells = [float(c.get_attribute("title")) for c in page.locator(".heat td").all()]
    yes = icgi.marginals(asia(), {"breathless": "yes"})
    given = icgi.marginals(asia(), {"breathless": "yes", "smoker": "yes"})
    assert sum(cells) == pytest.approx(1.0)
    assert cells[0] == pytest.approx(yes["smoker"][0] * given["bronchitis"][0])
    assert "By auto, exact" in page.locator(".joint").inner_text()
    page.get_by_role("button", name="Most probable configuration").click()
    page.get_by_text("no configuration is more probable").wait_for()
    best = icgi.mpe(asia(), {"breathless": "yes"})
    drawn = page.locator(".joint tr").all_inner_texts()
    assert [row.split()[:2] for row in drawn] == [[name, best[name]] for name in asia().names]


def test_the_graph_selects(page) -> None:
    tab(page, "graph")
    page.locator(".graph .node").first.wait_for()
    assert page.locator(".graph .node").count() == 8
    page.get_by_role("button", name="either: ").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".node.selected")
    assert page.locator(".variable.selected .name").text_content() == "either"


def test_elimination_is_stepped_through(page) -> None:
    tab(page, "elimination")
    page.locator(".elimination .node").first.wait_for(timeout=60_000)
    assert page.locator(".elimination .node").count() == 8
    for step in range(1, 9):
        page.get_by_role("button", name="Next step").click()
        assert f"Step {step} of 8" in page.locator(".elimination [aria-live]").inner_text()
        assert page.locator(".node.now").count() == 1
    assert "the last of all" in page.locator(".elimination [aria-live]").inner_text()
    assert page.locator(".elimination .edge:not(.gone)").count() == 0
    assert "largest error" in page.locator(".elimination").inner_text()


def test_search_and_sorting(page) -> None:
    names = page.locator(".variable .name")
    entropy = icgi.marginals(asia()).by_uncertainty()
    assert names.all_text_contents() == [asia().names[i] for i in entropy]
    page.get_by_label("Sort by").select_option("name")
    assert names.all_text_contents() == sorted(asia().names)
    page.get_by_label("Search").fill("b")
    assert names.all_text_contents() == ["breathless", "bronchitis", "tuberculosis"]


def test_old_bars_are_dimmed_while_an_approximation_improves(page) -> None:
    seen = "yes" if page.size == "phone" else "no"  # another question, which has no answer kept
    bar(page, "xray", seen).click()
    settled(page)
    page.get_by_label("Engine").select_option("pt")
    page.wait_for_selector(".icgi.stale")
    assert "engine=pt" in page.url
    settled(page)
    assert "pt (sampling" in page.locator(".status").inner_text()
    assert page.locator(".band:visible").count() > 0


def test_an_uploaded_model_cannot_run_anything(page, tmp_path) -> None:
    file = tmp_path / "bad<b>.uai"
    icgi.save(nasty(), file)
    page.locator("input[type=file]").set_input_files(file)
    page.get_by_role("article", name="2").wait_for()
    settled(page)
    assert page.locator(".variable").count() == 3
    assert page.title() == "bad<b> – icgi"
    page.locator("input[type=file]").set_input_files(
        {"name": "x.uai", "mimeType": "text/plain", "buffer": b"MARKOV nonsense"}
    )
    page.get_by_role("alert").filter(has_text="line 1").wait_for()
    page.troubles.clear()  # the browser reports the 422


@pytest.mark.parametrize("size", SIZES)
def test_the_description_of_the_routes_is_drawn_here(browser, address, size) -> None:
    page = watched(browser, size)
    page.goto(f"{address}/docs")
    page.get_by_text("POST /marginals", exact=False).first.wait_for()
    for route in page.locator("summary").all():
        route.click()
    assert page.get_by_text("Retry-After").count() > 0
    assert page.troubles == []
    assert no_overflow(page)
    page.close()


@pytest.mark.parametrize("size", SIZES)
def test_the_widget_asks_python_through_its_messages(browser, size) -> None:
    """The real Python side answers the real JavaScript side; only the wire is made up."""
    view = icgi.view(nasty(), evidence={"__proto__": 0}, name="nasty")
    sent: list[dict] = []
    view.send = lambda content, buffers=None: sent.append(content)
    page = watched(browser, size)

    def hear(text):
        sent.clear()
        view._answer(view, json.loads(text), [])
        return json.dumps(sent)

    def save(text):
        view.question = json.loads(text)

    page.expose_function("toPython", hear)
    page.expose_function("savePython", save)
    page.set_content("<main id=root></main>")
    page.add_style_tag(content=view._css)
    source = view._esm.replace("export default", "window.widget =")
    traits = {key: getattr(view, key) for key in ("facts", "engines", "question")}
    page.add_script_tag(type="module", content=source)
    page.wait_for_function("window.widget")
    page.evaluate(
        """(text) => {
          const values = JSON.parse(text);
          const listeners = [];
          const model = {
            get: (key) => values[key], set: (key, value) => { values[key] = value; },
            save_changes: () => savePython(JSON.stringify(values.question)),
            on: (kind, hear) => listeners.push(hear), off: () => {},
            send: async (message) => {
              const answers = JSON.parse(await toPython(JSON.stringify(message)));
              for (const answer of answers) for (const hear of listeners) hear(answer);
            },
          };
          window.widget.render({ model, el: document.getElementById("root") });
        }""",
        json.dumps(traits),
    )
    settled(page)
    assert shown(page)["__proto__"] == [1.0, 0.0]
    bar(page, NASTY, "</script>").click()
    settled(page)
    assert view.evidence == {"__proto__": "0", NASTY: "</script>"}
    assert view.answer is not None
    assert view.answer[NASTY].tolist() == [0.0, 1.0]
    page.get_by_role("button", name="Undo").click()
    settled(page)
    page.get_by_role("button", name="take back __proto__").click()
    settled(page)
    assert np.allclose(shown(page)[NASTY], icgi.marginals(nasty())[NASTY], atol=1e-4)
    assert page.title() == ""
    assert page.troubles == []
    assert no_overflow(page)
    page.close()


@pytest.mark.parametrize("size", SIZES)
def test_a_report_can_be_searched_and_read_without_scripts(browser, tmp_path, size) -> None:
    answer = icgi.marginals(nasty(), {"__proto__": 1}, engine="pt")
    file = tmp_path / "report.html"
    file.write_text(html.page(answer, "nasty <b>"), encoding="utf-8")
    page = watched(browser, size)
    page.goto(file.as_uri())
    page.wait_for_selector(".read-only .variable")
    assert np.allclose(shown(page)[NASTY], answer[NASTY], atol=1e-3)
    page.get_by_label("Search").fill("xxx")
    assert page.locator(".variable").count() == 1
    assert page.title() == "nasty <b>"
    assert page.troubles == []
    assert no_overflow(page)
    plain = watched(browser, size, java_script_enabled=False)
    plain.goto(file.as_uri())
    assert plain.locator(".variable").count() == 3
    assert plain.get_by_text("100.0 %").count() == 0  # of the script
    assert plain.get_by_text("1.0000").count() == 1
    for made in (page, plain):
        made.close()


@pytest.mark.parametrize("size", SIZES)
def test_two_answers_side_by_side(browser, tmp_path, size) -> None:
    found = [answer_facts(icgi.marginals(asia(), engine=e)) for e in ("pt", "jt")]
    file = tmp_path / "report.html"
    file.write_text(comparison(*found, ("pt.json", "jt.json")), encoding="utf-8")
    page = watched(browser, size)
    page.goto(file.as_uri())
    page.locator(".read-only").nth(1).wait_for()
    assert page.locator(".variable").count() == 16
    names = page.locator(".variable .name").all_text_contents()
    assert names[:8] == names[8:]
    assert page.troubles == []
    assert no_overflow(page)
    page.close()
