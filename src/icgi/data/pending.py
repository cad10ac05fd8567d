"""The journal of a set: one line of JSON per label that is not yet in a shard.

A line counts when it is whole. What a full disk, a kill or a power loss left of one is set aside
before the next line is written, so it never swallows another.
"""

import json
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from icgi.data.jobs.manifest import append_lines
from icgi.data.records import Label, answer_row, label_of, marginal_rows
from icgi.errors import IcgiError, ModelFormatError

NAME = "pending.jsonl"
TORN = "pending.torn"
"""Where lines go that are not whole, for whoever wants to look at them."""

Entry: TypeAlias = tuple[dict[str, Any], list[dict[str, Any]]]
_BEGIN = b'[{"instance": '


@dataclass(frozen=True, slots=True)
class Journal:
    """What a pending file holds."""

    entries: tuple[Entry, ...]  # whole and sound, each instance once
    lines: tuple[bytes, ...]  # the same as text
    torn: tuple[bytes, ...]  # lines, or parts of lines, that are no label
    doubled: int  # labels of instances that had one already
    clean: bool  # nothing to mend, the last line ends


def read(folder: Path, variables: Mapping[str, int] | None = None) -> Journal:
    """Read the pending labels of a set, whatever state the file is in.

    With the number of variables of every instance, labels that do not fit count as torn.
    """
    try:
        data = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return Journal((), (), (), 0, True)
    except OSError as error:
        raise ModelFormatError(f"{folder / NAME} cannot be read ({error.strerror})") from error
    entries: dict[str, tuple[Entry, bytes]] = {}
    torn: list[bytes] = []
    doubled, clean = 0, not data or data.endswith(b"\n")
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        entry, text, rest = _parse(line, variables)
        clean = clean and not rest
        if rest:
            torn.append(rest)
        if entry is not None:
            doubled += entry[0]["instance"] in entries
            entries.setdefault(entry[0]["instance"], (entry, text))
    found = list(entries.values())
    return Journal(
        tuple(e for e, _ in found), tuple(t for _, t in found), tuple(torn), doubled,
        clean and not doubled,
    )  # fmt: skip


def size(folder: Path) -> int:
    """Bytes of the pending file, 0 where there is none."""
    try:
        return (folder / NAME).stat().st_size
    except OSError:
        return 0


def append(folder: Path, labels: Mapping[str, Label]) -> None:
    """Add labels; they are on the disk after this call, or the file is as it was before."""
    texts = [
        json.dumps([answer_row(name, label), marginal_rows(name, label)]).encode() + b"\n"
        for name, label in labels.items()
    ]
    text, path = b"".join(texts), folder / NAME
    if not text:
        return
    try:
        append_lines(path, text)
    except OSError as error:
        whose = ", ".join(labels) if len(labels) < 4 else f"{len(labels)} instances"
        raise IcgiError(
            f"the label of {whose} could not be written to {path} ({error.strerror}); all earlier "
            "ones are kept: make room and run again"
        ) from error


def remove(folder: Path, names: Collection[str]) -> None:
    """Take out labels that are in a shard; where that fails they are passed over when read."""
    journal, path = read(folder), folder / NAME
    pairs = zip(journal.entries, journal.lines, strict=True)
    left = [line for (answer, _), line in pairs if answer["instance"] not in names]
    with suppress(OSError):
        if left:
            _rewrite(path, left)
        else:
            path.unlink(missing_ok=True)


def mend(folder: Path, variables: Mapping[str, int]) -> list[str]:
    """Set aside what is no label, so that lines can be added; returns what was done, in words."""
    journal = read(folder, variables)
    if journal.clean:
        return []
    path = folder / NAME
    try:
        if journal.torn:
            with (folder / TORN).open("ab") as aside:
                aside.write(b"".join(rest + b"\n" for rest in journal.torn))
        _rewrite(path, journal.lines)
    except OSError as error:
        raise IcgiError(
            f"{path} has damaged lines and could not be mended ({error.strerror}); nothing was "
            "changed: make room and run again"
        ) from error
    notes = []
    if journal.torn:
        notes.append(
            f"{path} had {len(journal.torn)} torn or unsuitable lines; they are in {TORN} now, and "
            "their instances are labelled again"
        )
    if journal.doubled:
        notes.append(f"{path} had {journal.doubled} labels twice; the first ones were kept")
    return notes


def _rewrite(path: Path, lines: Iterable[bytes]) -> None:
    """Replace the lines of the file; on failure it is as it was."""
    draft = path.with_name(f"{NAME}.partial")
    try:
        with draft.open("wb") as file:
            file.write(b"".join(line + b"\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise


def _parse(line: bytes, variables: Mapping[str, int] | None) -> tuple[Entry | None, bytes, bytes]:
    """Label of a line, its text, and what else the line holds: a torn line may swallow a label."""
    at = 0
    while at >= 0:
        entry = _entry(line[at:], variables)
        if entry is not None:
            return entry, line[at:], line[:at]
        at = line.find(_BEGIN, at + 1)
    return None, b"", line


def _entry(text: bytes, variables: Mapping[str, int] | None) -> Entry | None:
    try:
        answer, rows = json.loads(text)
        label_of(answer, rows)
        name = answer["instance"]
        fits = variables is None or variables.get(name) == len(rows)
        sound = _sound_answer(answer) and all(_sound_row(row, name) for row in rows)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ModelFormatError):
        return None
    return (answer, rows) if fits and sound else None


def _sound_answer(answer: Mapping[str, Any]) -> bool:
    texts = [answer[key] for key in ("instance", "method", "checks")]
    numbers = ["log_z_error", "r_hat", "max_std_error", "max_s_hat", "seconds"]
    numbers += ["log_z"] if answer["log_z"] is not None else []
    return set(map(type, texts)) == {str} and _all_numbers([answer[key] for key in numbers])


def _sound_row(row: Mapping[str, Any], name: str) -> bool:
    given = [row[key] for key in ("s_hat", "ess") if row[key] is not None]
    lists = [row[key] for key in ("probs", "std_error") if row[key] is not None]
    words = row["instance"] == name and type(row["method"]) is str
    return words and type(row["variable"]) is int and all(map(_all_numbers, [given, *lists]))


def _all_numbers(values: list[Any]) -> bool:
    return set(map(type, values)) <= {int, float}
