"""What the service allows: sizes, times and numbers, in one value."""

import re
from dataclasses import dataclass

from icgi.units import readable_bytes


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the service; every one of them is checked before the work it bounds."""

    body_bytes: int = 2**20  # of a question
    body_seconds: float = 30.0  # in which a request has to arrive
    model_bytes: int = 2**25  # of a model sent by a client
    models: int = 200  # that clients may leave here
    store_bytes: int = 2**30  # of models and results together
    workers: int = 2  # processes that compute
    queue: int = 64  # questions that may wait
    seconds: float = 60.0  # that a question may ask for
    usual_seconds: float = 20.0  # where it asks for none
    short_seconds: float = 5.0  # of questions for which one worker is kept free
    grace_seconds: float = 60.0  # beyond its time (compiling included), until a worker is ended
    memory_bytes: int = 2**31  # of one worker, beyond what it holds when it starts
    streams: int = 64  # event streams at a time
    kept: int = 5000  # finished questions


UPLOADS = ("uai", "bif", "xmlbif", "json", "mtx", "gset")  # formats with readers of our own

_UAI_HEAD = re.compile(rb"\s*(MARKOV|BAYES)\s+(\d{1,18})\s", re.IGNORECASE)
_JSON_STATES = re.compile(rb'"states"\s*:\s*(\d{1,18})?')
_GRAPH_HEAD = re.compile(rb"\s*(?:%[^\n]*\n\s*)*(\d{1,18})\s+\d")  # of Matrix Market and GSet
_PER_BYTE = 8  # bytes held for a byte of text while it is read: measured 2, values take 4
_PER_STATE = 64  # bytes held for a state of a variable: marginals, errors, their JSON form


def predicted_bytes(content: bytes, form: str = "uai") -> int:
    """Memory that a model takes, known from the length of its text and the first numbers in it."""
    total = _PER_BYTE * len(content)
    if form == "json":
        counts = [int(word or 1) for word in _JSON_STATES.findall(content)]
        return total + _PER_STATE * len(counts) * max(counts, default=1)
    if form in ("mtx", "gset"):
        nodes = _GRAPH_HEAD.match(content)
        return total + (_PER_STATE * 2 * int(nodes[1]) if nodes else 0)
    head = _UAI_HEAD.match(content[:4096])
    if head is None:
        return total
    n = int(head[2])
    cards = content[head.end() :].split(maxsplit=min(n, len(content)))[:n]
    largest = max((int(word) for word in cards if word.isdigit() and len(word) < 19), default=1)
    return total + _PER_STATE * n * largest


def too_large(needed: float, allowed: float, what: str) -> str:
    """What to say about something that does not fit."""
    return f"{what} {readable_bytes(needed)}, this service allows {readable_bytes(allowed)}"
