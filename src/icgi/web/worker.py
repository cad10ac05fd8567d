"""A process that answers questions one at a time: JSON lines in, JSON lines out.

`python -m icgi.web.worker STORE MEMORY_BYTES`. It has its own limit of memory, and can be ended at
any moment; a line `{"stop": true}` lets the engine at work return the best answer so far.
"""

import contextlib
import json
import os
import queue
import resource
import sys
import tempfile
import threading
import time
import typing
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from icgi import clock
from icgi.answer import Answer
from icgi.api import from_factors, load
from icgi.engines import engine_class
from icgi.errors import IcgiError
from icgi.inference import Status
from icgi.kernels import never_interpret
from icgi.model.graph import FactorGraph
from icgi.web import drawing, elimination, questions
from icgi.web.payload import answer_facts, model_facts
from icgi.web.questions import Question
from icgi.web.store import content_of

_HELD = 4  # models that stay in memory
_PAUSE = 0.2  # seconds between two reports of progress
_LEAVING = 2.0  # seconds to end in after the service has gone

Progress = Callable[[dict[str, Any]], None]


class Worker:
    """Models at hand, and what can be done with them."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._models: OrderedDict[str, FactorGraph] = OrderedDict()

    def do(self, order: dict[str, Any], progress: Progress) -> dict[str, Any]:
        """Answer one order, `{"kind": …, "model": …, "question": {…}}`."""
        given = dict(order["question"])
        extra = {
            key: given.pop(key)
            for key in ("variables", "around", "rank", "name")
            if key in given
        }  # fmt: skip
        model = self._model(order["model"])
        if order["kind"] == "read":
            return model_facts(model, extra["name"])
        if order["kind"] == "graph":
            around = extra.get("around")
            return drawing.graph(
                model, None if around is None else questions.number_of(model, around)
            )
        asked = Question(**given)
        refuse_free_text(asked.engine)
        if order["kind"] == "elimination":
            return elimination.trace(model, asked, extra["rank"], asked.seed)
        if order["kind"] == "joint":
            return questions.joint(model, asked, extra["variables"])
        if order["kind"] == "mpe":
            return questions.mpe(model, asked)
        report = _seldom(progress, asked.level)
        return answer_facts(questions.marginals(model, asked, report), asked.level)

    def _model(self, ident: str) -> FactorGraph:
        if ident not in self._models:
            suffix, content = content_of(self._store, ident)
            while len(self._models) >= _HELD:
                self._models.popitem(last=False)
            self._models[ident] = parse(suffix, content)
        self._models.move_to_end(ident)
        return self._models[ident]


def parse(suffix: str, content: bytes) -> FactorGraph:
    """Model from the content of a file with this ending, as `icgi.load` reads it."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        path = Path(f"model{suffix}")  # errors name it, and nothing of this machine
        path.write_bytes(content)
        return load(path)


def _seldom(progress: Progress, level: float) -> Callable[[Answer], None]:
    """Report answers on the way: not each of a quick series, and no exact one, which is last."""
    last = 0.0

    def better(answer: Answer) -> None:
        nonlocal last
        if answer.status is not Status.EXACT and time.monotonic() - last >= _PAUSE:
            last = time.monotonic()
            progress(answer_facts(answer, level))

    return better


def refuse_free_text(text: str) -> None:
    """Refuse engine options that hold any text: it might name a file or a device."""
    name, _, rest = text.partition(":")
    hints = typing.get_type_hints(engine_class(name))
    for item in rest.split(","):
        option = item.partition("=")[0]
        if hints.get(option) is str:
            raise IcgiError(f"the option {option} of an engine cannot be set from outside")


def limit_memory(beyond: int) -> None:
    """Let this process grow by so many bytes beyond what it holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + beyond
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def warm_up() -> None:
    """Load what the first question needs, so that nobody waits for it."""
    never_interpret()  # compiling later would count towards the memory of a question
    model = from_factors([(("a", "b"), [[1.0, 2.0], [3.0, 4.0]]), (("b", "c"), [[1.0, 2.0]] * 2)])
    answer_facts(questions.marginals(model, Question()))
    drawing.graph(model)


def main() -> None:
    """Read orders until the other end is closed."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # nothing else may write into the answers
    worker = Worker(Path(sys.argv[1]))
    warm_up()
    if sys.platform == "linux":
        limit_memory(int(sys.argv[2]))
    orders: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin, orders), daemon=True).start()
    _say(out, {"ready": True})
    while (order := orders.get()) is not None:
        _say(out, _outcome(worker, order, out))


def _listen(lines: TextIO, orders: "queue.SimpleQueue[dict[str, Any] | None]") -> None:
    """Pass orders on; a request to stop reaches the engine at work at once."""
    for line in lines:
        order = json.loads(line)
        if order.get("stop"):
            clock.request_stop()
        else:
            orders.put(order)
    orders.put(None)
    clock.request_stop()
    time.sleep(_LEAVING)
    os._exit(1)  # nobody waits for what is at work


def _outcome(worker: Worker, order: dict[str, Any], out: TextIO) -> dict[str, Any]:
    try:
        with clock.stoppable():
            return {"done": worker.do(order, lambda found: _say(out, {"progress": found}))}
    except IcgiError as wrong:
        return {"failed": {"type": type(wrong).__name__, "message": str(wrong)}}
    except MemoryError:
        with contextlib.suppress(MemoryError):
            worker._models.clear()
        message = "this question needs more memory than this service gives to one"
        return {"failed": {"type": "LimitError", "message": message}, "leave": True}


def _say(out: TextIO, message: dict[str, Any]) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
