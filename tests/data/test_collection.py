"""Archives and manifests of published collections: bounded, and never outside their folder."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from icgi.data import archive
from icgi.data.archive import members
from icgi.data.collection import COLUMNS, instances
from icgi.data.sources import source
from icgi.errors import ModelFormatError
from icgi.model import unpack

MODEL = b"MARKOV 1 2 1 1 0 2 0.25 0.75"


def tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as file:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo("link.uai")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        file.addfile(link)
    return buffer.getvalue()


def collection(folder: Path, name: str = "one", path: str = "a.tar.gz", **other: str) -> None:
    row = dict.fromkeys(COLUMNS, "") | {"name": name, "family": "f", "archive": path} | other
    lines = [",".join(row), ",".join(f'"{value}"' for value in row.values())]
    (folder / "manifest.csv").write_text("\n".join(lines) + "\n")
    (folder / "a.tar.gz").write_bytes(gzip.compress(tar({"one.uai": MODEL, "one.uai.evid": b"0"})))


def test_a_collection_is_read(tmp_path) -> None:
    collection(tmp_path)
    ((identity, model),) = source(str(tmp_path))
    assert identity.name == "one"
    assert model.n_variables == 1
    assert "link.uai" not in members(tmp_path / "a.tar.gz")


@pytest.mark.parametrize("path", ["/etc/passwd", "../a.tar.gz", "x/../../a.tar.gz", "C:\\\\a", ""])
def test_archives_outside_the_folder_are_refused(tmp_path, path: str) -> None:
    collection(tmp_path, path=path)
    with pytest.raises(ModelFormatError, match="not in its folder"):
        list(instances(tmp_path))


def test_links_that_lead_outside_are_refused(tmp_path) -> None:
    (tmp_path / "inner").mkdir()
    collection(tmp_path / "inner", path="link.tar.gz")
    (tmp_path / "inner" / "link.tar.gz").symlink_to(tmp_path / "elsewhere.tar.gz")
    with pytest.raises(ModelFormatError, match="not in its folder"):
        list(instances(tmp_path / "inner"))


def test_what_unpacks_to_too_much_is_refused(tmp_path, monkeypatch) -> None:
    path = tmp_path / "bomb.tar.gz"
    path.write_bytes(gzip.compress(tar({"zeros.uai": b"0" * 3_000_000})))
    monkeypatch.setattr(unpack, "FREE", 100_000)
    with pytest.raises(ModelFormatError, match=r"bomb\.tar\.gz: \d+ bytes unpack to more than"):
        members(path)
    monkeypatch.setattr(archive, "LARGEST", 1_000_000)
    (tmp_path / "plain.tar").write_bytes(tar({"zeros.uai": b"0" * 3_000_000}))
    with pytest.raises(ModelFormatError, match="announces more than an archive may hold"):
        members(tmp_path / "plain.tar")


def test_broken_archives_are_explained(tmp_path) -> None:
    whole = gzip.compress(tar({"one.uai": MODEL * 100}))
    cases = {
        "cut.tar.gz": whole[: len(whole) // 2],
        "noise.tar.gz": b"\x1f\x8b" + b"?" * 100,
        "text.tar": b"no archive" * 100,
        "cut.tar": tar({"one.uai": MODEL * 100})[:900],
        "empty.tar": b"",
    }
    for name, data in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ModelFormatError, match=name):
            members(tmp_path / name)
    with pytest.raises(ModelFormatError, match="no such archive"):
        members(tmp_path / "absent.tar")
    with pytest.raises(ModelFormatError, match="cannot be read"):
        members(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"name,family\na,b\n", "row 1: no archive"),
        (b"\xff\xfe", "cannot be read"),
        ((",".join(COLUMNS) + "\na,b\n").encode(), "row 1: no archive"),
    ],
)
def test_broken_manifests_are_explained(tmp_path, text: bytes, message: str) -> None:
    (tmp_path / "manifest.csv").write_bytes(text)
    with pytest.raises(ModelFormatError, match=message):
        list(instances(tmp_path))


def test_control_characters_in_names_are_refused(tmp_path) -> None:
    collection(tmp_path, name="one\x1b[2J")
    with pytest.raises(ModelFormatError, match="control characters"):
        list(instances(tmp_path))


def test_an_instance_that_no_archive_holds_is_explained(tmp_path) -> None:
    collection(tmp_path, name="two")
    with pytest.raises(ModelFormatError, match=r"a\.tar\.gz holds no two\.uai"):
        list(source(str(tmp_path)))
