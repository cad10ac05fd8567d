"""Labelled sets of 100,000 instances: create, open, verify, append, compact, stream, query.

    python benchmarks/large_sets.py [--instances 100000] --folder FOLDER | --render

Models are grids of 3 × 3 spins, labelled exactly in batches. Prints processor and elapsed seconds
of every step, and what DuckDB and pandas take; one line of JSON for each step goes to
benchmarks/results/large_sets.jsonl. A set that is in the folder is used.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas
import pyarrow.dataset

import icgi
from icgi.data.families import FAMILIES
from icgi.data.jobs.answers import hardware
from icgi.data.store import Identity, Label, LabelledSet
from icgi.model.graph import FactorGraph

LINES = Path(__file__).parent / "results" / "large_sets.jsonl"
SIDE = 3
SOME = 1000  # labels that are appended one by one, in one block and each by itself


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--instances", type=int, default=100_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    if options.folder is not None:
        measure(options.folder, options.instances)
    for line in stored():
        print(f"{line['instances']:8,} {line['step']:50} {line['cpu']:8.2f} {line['seconds']:8.2f}")


def stored() -> list[dict[str, Any]]:
    return [json.loads(line) for line in LINES.read_text().splitlines()] if LINES.exists() else []


def measure(folder: Path, count: int) -> None:
    def timed(name: str, action: Callable[[], Any]) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        found = action()
        line = {"instances": count, "step": name, "cpu": round(time.process_time() - cpu, 3)}
        line |= {"seconds": round(time.perf_counter() - wall, 3), "hardware": hardware()}
        kept = [x for x in stored() if (x["instances"], x["step"]) != (count, name)]
        LINES.write_text("".join(json.dumps(each) + "\n" for each in [*kept, line]))
        return found

    if not (folder / "manifest.json").exists():
        timed("create", lambda: LabelledSet.create(folder, drawn(count), "grids"))
        fill(LabelledSet(folder), timed)
    stored_set = timed("open", lambda: LabelledSet(folder))
    assert len(stored_set) == count
    damage = timed("verify", stored_set.verify)
    assert not damage, damage[:3]
    timed("names of what is labelled", stored_set.labelled)
    timed("first instance of the stream", lambda: next(iter(stored_set.stream())))
    timed("stream of 10,000", lambda: sum(1 for _ in islice(stored_set.stream(), 10_000)))
    queries(folder, timed)


def drawn(count: int) -> Iterator[tuple[Identity, FactorGraph]]:
    family = FAMILIES["ea2d"]
    for k in range(count):
        model = family.sample(np.random.default_rng([7, k]), L=SIDE)
        yield Identity(f"grid-{k}", "ea2d", "train", {"L": SIDE}), model


def fill(stored: LabelledSet, timed: Callable[[str, Callable[[], Any]], Any]) -> None:
    """Label everything; the last ones are appended while the rest is there."""
    labels = timed("exact labels", lambda: labelled(stored))
    names = list(labels)
    early, one_by_one, together = names[: -2 * SOME], names[-2 * SOME : -SOME], names[-SOME:]

    def most() -> None:
        with stored.writing():
            for at in range(0, len(early), 1024):
                part = early[at : at + 1024]
                stored.append_all({name: labels[name] for name in part})
                stored.compact(part)

    timed("append and compact all but 2,000", most)
    fresh = LabelledSet(stored.folder)

    def one() -> None:
        with fresh.writing():
            for name in one_by_one:
                fresh.append(name, labels[name])

    timed("append 1,000, one by one", one)
    timed(
        "append 1,000, one by one, each by itself",
        lambda: [fresh.append(n, labels[n]) for n in together],
    )
    timed("compact 2,000", fresh.compact)


def labelled(stored: LabelledSet) -> dict[str, Label]:
    found = {}
    for shard in stored.shards():
        names, models = zip(*((i.name, m) for i, m in shard), strict=True)
        answers = icgi.marginals_batch(list(models), engine="jt")
        for name, answer in zip(names, answers, strict=True):
            found[name] = Label(answer.probs, "jt", answer.log_z)
    return found


def queries(folder: Path, timed: Callable[[str, Callable[[], Any]], Any]) -> None:
    """Instances by family and method; mean log Z; the most polarised variables."""
    answers, marginals = (f"{folder}/{kind}-*.parquet" for kind in ("answers", "marginals"))
    timed(
        "DuckDB: count and mean log Z by method",
        lambda: duckdb.sql(
            f"SELECT method, count(*), avg(log_z) FROM '{answers}' GROUP BY method"
        ).fetchall(),
    )
    timed(
        "DuckDB: twenty most certain variables",
        lambda: duckdb.sql(
            f"SELECT instance, variable, list_max(probs) AS p FROM '{marginals}' "
            "ORDER BY p DESC LIMIT 20"
        ).fetchall(),
    )

    def read(kind: str, columns: list[str]) -> pandas.DataFrame:
        files = sorted(folder.glob(f"{kind}-*.parquet"))
        return pyarrow.dataset.dataset(files).to_table(columns=columns).to_pandas()

    timed(
        "pandas: count and mean log Z by method",
        lambda: read("answers", ["method", "log_z"]).groupby("method").log_z.agg(["count", "mean"]),
    )
    timed(
        "pandas: all probabilities",
        lambda: np.concatenate(read("marginals", ["probs"]).probs.to_numpy()).sum(),
    )


if __name__ == "__main__":
    main()
