"""Checks of a set on disk: hashes, torn lines, duplicate rows."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from icgi.data import pending
from icgi.errors import ModelFormatError

LISTED = 5  # instances named in one line


def digest(path: Path) -> str:
    """SHA-256 of a file, read piece by piece."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def damaged(stored: Any) -> list[str]:
    """Everything that is wrong with a set, a line each, beginning with the file."""
    broken: dict[str, str] = {}
    for kind in ("models", "answers", "marginals"):
        for shard in stored.manifest[kind]:
            what = _file_damage(stored, kind, shard)
            if what:
                broken[shard["file"]] = what
    found = [f"{file}: {what}" for file, what in broken.items()]
    if any(shard["file"] in broken for shard in stored.manifest["models"]):
        return found  # nothing to compare labels with
    variables: dict[str, int] = stored.variables()
    if len(variables) != len(stored):
        found.append(f"manifest.json: {len(stored)} instances announced, {len(variables)} found")
    seen: set[str] = set()
    pairs = zip(stored.manifest["answers"], stored.manifest["marginals"], strict=True)
    for number, (answers, marginals) in enumerate(pairs):
        if answers["file"] in broken or marginals["file"] in broken:
            continue
        found += _label_damage(stored, number, variables, seen)
    return found + list(_pending_damage(stored.folder, variables))


def _file_damage(stored: Any, kind: str, shard: Mapping[str, Any]) -> str:
    path = stored.folder / shard["file"]
    try:
        if not path.is_file():
            return "missing"
        if digest(path) != shard["sha256"]:
            return "differs from the hash in the manifest"
        rows = stored.table(kind, shard["file"]).num_rows
    except (OSError, ModelFormatError) as error:
        return f"unreadable ({error})"
    return "" if rows == shard["rows"] else f"{rows} rows, the manifest says {shard['rows']}"


def _label_damage(
    stored: Any, number: int, variables: Mapping[str, int], seen: set[str]
) -> Iterator[str]:
    """Labels of one shard that are doubled, of nothing, or of the wrong shape."""
    answers, marginals = (
        stored.manifest[kind][number]["file"] for kind in ("answers", "marginals")
    )
    names = stored.table("answers", answers, ["instance"])["instance"].to_pylist()
    again = sorted(name for name, count in Counter(names).items() if count > 1)
    if again:
        yield f"{answers}: labels twice: {_listed(again)}"
    earlier = sorted(seen & set(names))
    if earlier:
        yield f"{answers}: labels that an earlier file has: {_listed(earlier)}"
    unknown = sorted(set(names) - set(variables))
    if unknown:
        yield f"{answers}: labels of unknown instances: {_listed(unknown)}"
    seen |= set(names)
    wrong = _wrong_shapes(stored.table("marginals", marginals), variables, set(names))
    if wrong:
        yield f"{marginals}: not one row of probabilities per variable: {_listed(wrong)}"


def _wrong_shapes(table: Any, variables: Mapping[str, int], names: set[str]) -> list[str]:
    """Instances whose rows are not each variable once, each with probabilities."""
    coded = table["instance"].combine_chunks().dictionary_encode()
    owners = coded.dictionary.to_pylist()
    owner = coded.indices.to_numpy(zero_copy_only=False)
    variable = table["variable"].to_numpy()
    expected = np.array([variables.get(name, -1) for name in owners], dtype=np.int64)
    bad = np.bincount(owner, minlength=len(owners)) != expected
    order = np.lexsort((variable, owner))
    first = np.concatenate([[0], np.flatnonzero(np.diff(owner[order])) + 1, [len(order)]])
    place = np.arange(len(order)) - np.repeat(first[:-1], np.diff(first))
    bad[owner[order][variable[order] != place]] = True
    lists = table["probs"].combine_chunks()
    start = lists.offsets.to_numpy().astype(np.int64)
    values = np.append(lists.values.to_numpy(zero_copy_only=False), 0.0)
    sums = np.where(np.diff(start) > 0, np.add.reduceat(values, start[:-1]), 0.0)
    bad[owner[~(np.abs(sums - 1) < 1e-3)]] = True
    alone = {name for name in names ^ set(owners) if variables.get(name) != 0}
    return sorted({owners[k] for k in np.flatnonzero(bad)} | alone)


def _pending_damage(folder: Path, variables: Mapping[str, int]) -> Iterator[str]:
    journal = pending.read(folder, variables)
    if journal.torn:
        yield f"{pending.NAME}: {len(journal.torn)} torn or unsuitable lines"
    if journal.doubled:
        yield f"{pending.NAME}: {journal.doubled} labels twice"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
