"""Damaged files of every format are read or refused with file and advice, never anything else."""

import random
import re
from pathlib import Path

import pytest
from test_networks import QUICK, SLOW

import icgi
from icgi.data.collection import data_folder
from icgi.model.formats import parse
from icgi.model.formats.files import read_bytes

WORDS = (
    b"{", b"}", b"(", b")", b",", b";", b"|", b'"', b"[", b"]", b"<", b">", b"</TABLE>", b"-1",
    b"1e400", b"nan", b"inf", b"0", b"9" * 20, b"\x00", b"\xff\xfe", b"\n", b"//", b"/*", b"&lt;",
    b"&x;", b"null", b"true", b"1.5.5", b"probability", b"variable", b"table", b"default", b"%",
)  # fmt: skip


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One to three changes: cut, dropped, doubled, swapped, other words, other numbers."""
    text = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not text:
            break
        at, kind = rng.randrange(len(text)), rng.randrange(7)
        other = rng.randrange(len(text))
        if kind == 0:
            del text[at:]
        elif kind == 1:
            del text[at : at + rng.choice((1, 2, 10, 100))]
        elif kind == 2:
            text[at:at] = rng.choice(WORDS)
        elif kind == 3:
            text[at] = rng.randrange(256)
        elif kind == 4:
            text[at:at] = text[other : other + rng.choice((1, 5, 50, 300))]
        elif found := list(re.finditer(rb"[\w.]+", bytes(text[at : at + 2000]))):
            word = rng.choice(found)
            new = rng.choice((b"", b"zzz", word[0] * 2, b"7", b"-3", b"1,5", rng.choice(WORDS)))
            text[at + word.start() : at + word.end()] = new
    return bytes(text)


def check(data: bytes, name: str) -> None:
    try:
        parse(data, name)
    except icgi.ModelFormatError as error:
        text = str(error)
        assert text.startswith(name)
        assert text.isprintable()
        assert len(text) < 500


def small(ending: str, folder: Path) -> bytes:
    if ending == ".gset":
        return b"4 5\n1 2 1\n2 3 -1\n3 4 2\n1 4 1\n1 3 1\n"
    model: icgi.FactorGraph = icgi.from_ising([[0, 1, 0.5], [1, 0, -2], [0.5, -2, 0]])
    if ending != ".mtx":
        from icgi.cli.demo import travel

        model = travel()
    icgi.save(model, folder / f"model{ending}")
    return (folder / f"model{ending}").read_bytes()


@pytest.mark.parametrize("ending", [".uai", ".bif", ".xmlbif", ".json", ".mtx", ".gset"])
def test_small_files(ending: str, tmp_path: Path) -> None:
    data, rng = small(ending, tmp_path), random.Random(0)
    for _ in range(300):
        check(mutated(data, rng), f"model{ending}")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_networks_of_the_repository(name: str, tmp_path: Path) -> None:
    folder = data_folder()
    if folder is None:
        pytest.skip("no instances")
    data = read_bytes(folder / "bn" / f"{name}.bif.gz", icgi.ModelFormatError)
    rng = random.Random(1)
    for ending in (".bif", ".xmlbif", ".json", ".uai"):
        if ending != ".bif":
            if len(data) > 300_000:
                break
            icgi.save(parse(data, f"{name}.bif"), tmp_path / f"model{ending}")
        text = data if ending == ".bif" else (tmp_path / f"model{ending}").read_bytes()
        for _ in range(max(5, min(200, 10_000_000 // len(text)))):
            check(mutated(text, rng), f"{name}{ending}")
