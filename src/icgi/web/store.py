"""Models and questions with their answers in one SQLite file, which survives a restart."""

import contextlib
import fcntl
import json
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icgi.errors import IcgiError

QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
ENDED = (DONE, FAILED, CANCELLED)
_ATTEMPTS = 2  # a question whose worker, or the service, died twice is not tried again
_SCHEMA = """
CREATE TABLE IF NOT EXISTS models (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, suffix TEXT NOT NULL, content BLOB NOT NULL,
    facts TEXT, served INTEGER NOT NULL, created REAL NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY, key TEXT NOT NULL, kind TEXT NOT NULL, model TEXT NOT NULL,
    question TEXT NOT NULL, state TEXT NOT NULL, progress TEXT, result TEXT, error TEXT,
    created REAL NOT NULL, started REAL, finished REAL, attempts INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS jobs_key ON jobs (key, state);
CREATE INDEX IF NOT EXISTS jobs_state ON jobs (state, created);
CREATE INDEX IF NOT EXISTS jobs_model ON jobs (model);
"""


@dataclass(frozen=True)
class Job:
    """One question, how far it is, and what came of it; the last four are JSON objects."""

    id: str
    key: str  # the same for the same question
    kind: str
    model: str
    state: str
    created: float
    started: float | None
    finished: float | None
    question: dict[str, Any]
    progress: dict[str, Any] | None
    result: dict[str, Any] | None
    error: dict[str, Any] | None

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state in ENDED


class Store:
    """The file, open for one service; a second one is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = path.with_name(path.name + ".lock").open("w")
        except OSError as error:
            raise IcgiError(f"cannot keep results in {path}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise IcgiError(
                f"{path} is used by another service; stop it, or give this one another file"
            ) from error
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_SCHEMA)
        except sqlite3.DatabaseError as error:
            self._lock.close()
            raise IcgiError(
                f"{path} is no store of this service ({error}); give another file"
            ) from error
        self._recover()

    def close(self) -> None:
        """Let another service have the file."""
        self._db.close()
        self._lock.close()

    def _recover(self) -> None:
        """Put questions back into the queue that were at work when the last service ended."""
        self._db.execute(
            "UPDATE jobs SET state = ?, error = ?, finished = ? WHERE state = ? AND attempts >= ?",
            (FAILED, json.dumps({"type": "Ended", "message": "the service ended while this "
             "question was at work, twice"}), time.time(), RUNNING, _ATTEMPTS),
        )  # fmt: skip
        self._db.execute("UPDATE jobs SET state = ? WHERE state = ?", (QUEUED, RUNNING))

    # models

    def none_served(self) -> None:
        """Models given to an earlier service are from now on as if a client had left them."""
        self._db.execute("UPDATE models SET served = 0")

    def add_model(self, ident: str, name: str, suffix: str, content: bytes, served: bool) -> None:
        """Keep a model; one that is there already gets the new name."""
        self._db.execute(
            "INSERT INTO models VALUES (?, ?, ?, ?, NULL, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "name = excluded.name, served = max(served, excluded.served), created = CASE "
            "WHEN excluded.served THEN excluded.created ELSE created END",
            (ident, name, suffix, content, int(served), time.time()),
        )

    def describe_model(self, ident: str, facts: dict[str, Any]) -> None:
        """Keep what was found out about a model."""
        self._db.execute("UPDATE models SET facts = ? WHERE id = ?", (json.dumps(facts), ident))

    def models(self) -> list[dict[str, Any]]:
        """Every model that could be read: its id, name and sizes."""
        rows = self._db.execute(
            "SELECT id, name, served, json_array_length(facts, '$.variables'), "
            "json_extract(facts, '$.factors') FROM models WHERE facts IS NOT NULL "
            "ORDER BY served DESC, created, id"
        )
        keys = ("id", "name", "served", "variables", "factors")
        return [{**dict(zip(keys, row, strict=True)), "served": bool(row[2])} for row in rows]

    def model(self, ident: str) -> dict[str, Any] | None:
        """What is known of a model, with `facts` None where it has not been read yet."""
        row = self._db.execute(
            "SELECT id, name, served, facts FROM models WHERE id = ?", (ident,)
        ).fetchone()
        if row is None:
            return None
        facts = None if row[3] is None else json.loads(row[3]) | {"name": row[1]}
        return {"id": row[0], "name": row[1], "served": bool(row[2]), "facts": facts}

    def remove_model(self, ident: str) -> None:
        """Forget a model and all questions to it."""
        with self._all_or_nothing():
            self._db.execute("DELETE FROM models WHERE id = ?", (ident,))
            self._db.execute("DELETE FROM jobs WHERE model = ?", (ident,))

    def count_models(self) -> int:
        """Models that clients left here."""
        return int(self._db.execute("SELECT count(*) FROM models WHERE NOT served").fetchone()[0])

    def bytes_used(self) -> int:
        """Bytes of the file in use."""
        pages, free, size = (
            int(self._db.execute(f"PRAGMA {what}").fetchone()[0])
            for what in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    # jobs

    def add_job(self, job: Job) -> None:
        """Keep a new question."""
        self._db.execute(
            "INSERT INTO jobs (id, key, kind, model, question, state, created) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                job.id,
                job.key,
                job.kind,
                job.model,
                json.dumps(job.question),
                job.state,
                job.created,
            ),
        )

    def job(self, ident: str) -> Job | None:
        """One question."""
        return self._one("id = ?", (ident,))

    def answered(self, key: str) -> Job | None:
        """The same question, answered before."""
        return self._one("key = ? AND state = ?", (key, DONE))

    def waiting(self) -> list[tuple[str, float | None]]:
        """Ids of what waits, the oldest first, with the seconds each asks for."""
        rows = self._db.execute(
            "SELECT id, json_extract(question, '$.seconds') FROM jobs WHERE state = ? "
            "ORDER BY created, rowid",
            (QUEUED,),
        )
        return [(row[0], row[1]) for row in rows]

    def counts(self) -> dict[str, int]:
        """How many questions are in each state."""
        rows = self._db.execute("SELECT state, count(*) FROM jobs GROUP BY state")
        return {state: 0 for state in (QUEUED, RUNNING, *ENDED)} | dict(rows.fetchall())

    def start(self, ident: str) -> None:
        """Note that a worker has the question."""
        self._db.execute(
            "UPDATE jobs SET state = ?, started = ?, attempts = attempts + 1 WHERE id = ?",
            (RUNNING, time.time(), ident),
        )

    def try_again(self, ident: str) -> bool:
        """Put a question back whose worker died, the first time; returns whether."""
        done = self._db.execute(
            "UPDATE jobs SET state = ? WHERE id = ? AND state = ? AND attempts < ?",
            (QUEUED, ident, RUNNING, _ATTEMPTS),
        )
        return done.rowcount > 0

    def progress(self, ident: str, progress: dict[str, Any]) -> None:
        """Keep the best answer so far."""
        self._db.execute("UPDATE jobs SET progress = ? WHERE id = ?", (json.dumps(progress), ident))

    def end(
        self,
        ident: str,
        state: str,
        result: dict[str, Any] | None = None,
        error: dict[str, Any] | None = None,
    ) -> None:
        """Keep what came of a question instead of its progress; an ended one stays as it is."""
        text = _text(result)
        self._db.execute(
            "UPDATE jobs SET state = ?, result = ?, error = ?, finished = ?, "
            "progress = iif(? IS NULL, progress, NULL) WHERE id = ? AND state IN (?, ?)",
            (state, text, _text(error), time.time(), text, ident, QUEUED, RUNNING),
        )

    def prune(self, kept: int, most_bytes: int) -> None:
        """Forget the oldest finished questions beyond a number, and half of them beyond a size."""
        if self.bytes_used() > most_bytes:
            kept = min(kept, sum(self.counts()[s] for s in ENDED) // 2)
        self._db.execute(
            "DELETE FROM jobs WHERE rowid IN (SELECT rowid FROM jobs WHERE state IN (?, ?, ?) "
            "ORDER BY finished DESC LIMIT -1 OFFSET ?)",
            (*ENDED, kept),
        )

    def _one(self, where: str, values: tuple[str, ...]) -> Job | None:
        row = self._db.execute(
            "SELECT id, key, kind, model, state, created, started, finished, question, progress, "
            f"result, error FROM jobs WHERE {where} ORDER BY created DESC LIMIT 1",
            values,
        ).fetchone()
        if row is None:
            return None
        return Job(*row[:8], *(None if text is None else json.loads(text) for text in row[8:]))

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        self._db.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


def _text(value: dict[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(value)


def content_of(path: Path, ident: str) -> tuple[str, bytes]:
    """Ending and content of a model, for a worker: another process, which only reads."""
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        row = db.execute("SELECT suffix, content FROM models WHERE id = ?", (ident,)).fetchone()
    if row is None:
        raise IcgiError(f"model {ident} is gone")
    return row[0], row[1]
