"""The viewer in a notebook: the browser draws and sends questions, Python answers them.

Jupyter, JupyterLab, VS Code and marimo take it through anywidget.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anywidget
import traitlets

from icgi.answer import Answer
from icgi.errors import IcgiError
from icgi.model.graph import FactorGraph
from icgi.web import drawing, elimination, questions
from icgi.web.component import bundle, styles
from icgi.web.payload import ENGINE_WORDS, answer_facts, model_facts
from icgi.web.questions import Question


class View(anywidget.AnyWidget):  # type: ignore[misc]
    """A model that is looked at and clicked; `answer` and `evidence` follow the clicks."""

    _esm = bundle("widget")
    _css = styles()
    facts = traitlets.Dict().tag(sync=True)
    engines = traitlets.List().tag(sync=True)
    question = traitlets.Dict().tag(sync=True)

    def __init__(self, model: FactorGraph, asked: Question, name: str = "") -> None:
        self._model, self._settings = model, asked
        self.answer: Answer | None = None
        super().__init__(
            facts=model_facts(model, name),
            engines=[{"name": n, "words": words} for n, words in ENGINE_WORDS.items()],
            question={"evidence": dict(asked.evidence), "engine": asked.engine},
        )
        self.on_msg(self._answer)

    @property
    def evidence(self) -> dict[str, str]:
        """State of every observed variable."""
        return dict(self.question.get("evidence", {}))

    def _answer(self, _: Any, content: Any, buffers: Any) -> None:
        """Answer one message of the browser; what is wrong with it is an answer, too."""
        ident = content.get("id")
        try:
            result = self._do(content, lambda found: self.send({"id": ident, "progress": found}))
            self.send({"id": ident, "result": json.loads(json.dumps(result))})
        except IcgiError as wrong:
            self.send({"id": ident, "error": str(wrong)})

    def _do(self, content: Mapping[str, Any], progress: Any) -> dict[str, Any]:
        model, what = self._model, content["what"]
        if what == "graph":
            around = content.get("around")
            return drawing.graph(
                model, None if around is None else questions.number_of(model, around)
            )
        asked = self._question(content["question"])
        if what == "joint":
            return questions.joint(model, asked, content["variables"])
        if what == "mpe":
            return questions.mpe(model, asked)
        if what == "elimination":
            return elimination.trace(model, asked, int(content["rank"]), asked.seed)

        def better(answer: Answer) -> None:
            progress(answer_facts(answer, asked.level))

        found = questions.marginals(model, asked, better)
        if content["question"] == self.question:
            self.answer = found
        return answer_facts(found, asked.level)

    def _question(self, given: Mapping[str, Any]) -> Question:
        """Question of the browser, with the settings given in Python."""
        known = {key: given.get(key, {}) for key in ("evidence", "likelihood", "exclude")}
        return replace(self._settings, **known, engine=given.get("engine", self._settings.engine))
