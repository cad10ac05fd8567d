"""An answer in a notebook: every number shown is the answer's, names are text only."""

import re
from html import escape
from html.parser import HTMLParser

import numpy as np
import pytest

import icgi
from icgi.data.families import FAMILIES
from icgi.display import html, plain_engine, plot
from icgi.engines import ENGINES, parse_engine
from icgi.randomness import generator
from some_networks import network


class Table(HTMLParser):
    """Cells of the rows of a table, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


@pytest.mark.parametrize("name", [n for n in ENGINES if n not in ("icgi", "pt-gpu")])
def test_engines_are_called_as_people_ask_for_them(name: str) -> None:
    assert plain_engine(repr(parse_engine(name))) == name


def test_changed_settings_are_named() -> None:
    asked = "lbp:damping=0.5"
    assert plain_engine(repr(parse_engine(asked))) == asked
    assert plain_engine("Other(a=1)") == "Other(a=1)"
    assert "Auto" not in repr(icgi.marginals(network()))


def test_the_table_holds_the_numbers() -> None:
    answer = icgi.marginals(network(), {"Rain": 1})
    table = Table(html(answer))
    assert not table.open
    head, *rows = table.rows
    assert head[:2] == ["variable", "likeliest"]
    assert [row[0] for row in rows] == [answer.model.names[i] for i in answer.by_uncertainty()]
    for row in rows:
        i = answer.model.names.index(row[0])
        bars = dict(part.split(": ") for part in row[3].split(", "))
        for state, p in zip(answer.model.states[i], answer[i], strict=True):
            assert float(bars[state]) == pytest.approx(p, abs=5e-5)
        assert row[4] == ("observed" if row[0] == "Rain" else f"{answer.entropy()[i]:.3f}")


def test_bands_are_drawn_where_the_error_is_known() -> None:
    answer = icgi.marginals(network(), engine="pt", budget=icgi.Budget(iterations=300))
    low, high = answer.interval(0.9)
    text = html(answer)
    for row in Table(text).rows[1:]:
        i = answer.model.names.index(row[0])
        best = int(answer[i].argmax())
        assert row[5] == f"{low[i, best]:.4f}\xa0–\xa0{high[i, best]:.4f}"
    assert "band" not in html(icgi.marginals(network()))
    shares = [float(p) for p in re.findall(r"width:([\d.]+)%", text)]
    assert shares
    assert all(0 <= p <= 100 for p in shares)


def test_calibrated_sets_and_bands_come_with_their_promise() -> None:
    model = FAMILIES["grid"].sample(generator(1), rows=6, columns=6)
    answer = icgi.marginals(model, {0: 1}, "lbp")
    sets, (low, high) = answer.sets(0.9), answer.bands(0.9)
    text = html(answer)
    head, *rows = Table(text).rows
    assert head[5:] == ["90 % set", "90 % band"]
    for row in rows:
        i, best = int(row[0]), int(answer[int(row[0])].argmax())
        assert row[5] == "{" + ", ".join(str(x) for x in np.flatnonzero(sets[i])) + "}"
        assert row[6] == f"{low[i, best]:.4f}\xa0–\xa0{high[i, best]:.4f}"
    for sentence in answer.guarantee.sentences(0.9):
        assert escape(sentence) in text


def test_names_are_text() -> None:
    model = icgi.from_factors(
        [(("<script>alert(1)</script>",), [0.2, 0.8])],
        states={"<script>alert(1)</script>": ["<b>", "$x^2$"]},
    )
    answer = icgi.marginals(model)
    text = html(answer)
    assert "<script>" not in text
    assert "<b>:" not in text
    assert Table(text).rows[1][:2] == ["<script>alert(1)</script>", "$x^2$"]


def _labelled(ax) -> list:
    """Texts of a plot with the bars that they stand on."""
    return [
        (text, bar)
        for text in ax.texts
        for bar in ax.patches
        if bar.contains_point(ax.transData.transform(text.get_position()))
    ]


def test_plots_show_every_probability() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    answer = icgi.marginals(network(), {"Rain": 1}, "pt", icgi.Budget(iterations=300))
    ax = answer.plot()
    widths = sorted(round(bar.get_width(), 9) for bar in ax.patches)
    expected = sorted(round(float(p), 9) for row in answer for p in row)
    assert np.allclose(widths, expected)
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        answer.model.names[i] for i in answer.by_uncertainty()
    ]
    assert len(ax.lines) == len(answer) - 1  # bands of all but the observed variable
    again = plt.subplots()[1]
    colours = {text.get_text(): bar.get_facecolor() for text, bar in _labelled(ax)}
    assert all(colours[text.get_text()] == bar.get_facecolor() for text, bar in _labelled(ax))
    assert answer.plot(top=2, ax=again) is again
    assert len(again.get_yticklabels()) == 2
    with pytest.raises(icgi.IcgiError, match="between 0 and 1"):
        plot(answer, level=2)
    plt.close("all")
