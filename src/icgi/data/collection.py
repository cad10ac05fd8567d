"""Published benchmark instances: archives of models with evidence and reference answers.

The folder is given by the environment variable ICGI_DATA; nothing of it is part of the package.
"""

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from icgi.data.archive import members
from icgi.data.inside import inside
from icgi.errors import ModelFormatError
from icgi.model.condition import Evidence
from icgi.model.formats import FORMATS, parse
from icgi.model.formats.uai import parse_evidence, parse_marginals, parse_pr
from icgi.model.graph import FactorGraph, FloatArray
from icgi.model.names import check_names

COLUMNS = (
    "name", "family", "archive", "tractable_2p26", "reference_status", "recomputed_exact_file"
)  # fmt: skip


@dataclass(frozen=True, eq=False, slots=True)
class Instance:
    """One row of the manifest, with what the archives hold for it."""

    name: str
    family: str
    row: dict[str, str]
    archive: Path
    recomputed: Path | None

    @property
    def tractable(self) -> bool:
        """Whether the largest clique table of a known order has at most 2^26 entries."""
        return self.row["tractable_2p26"] == "yes"

    @property
    def has_reference(self) -> bool:
        """Whether trustworthy reference marginals exist: verified, or recomputed exactly."""
        return self.row["reference_status"] == "verified" or self.recomputed is not None

    def model(self) -> FactorGraph:
        """Parse the model."""
        inside = members(self.archive)
        ending = next((e for e in FORMATS if self.name + e in inside), ".uai")
        return parse(self._bytes(ending), self.name + ending)

    def evidence(self) -> Evidence:
        """Parse the evidence; none where the archive has no file for it."""
        member = f"{self.name}.uai.evid"
        data = members(self.archive).get(member)
        return {} if data is None else parse_evidence(data, member)

    def reference(self) -> list[FloatArray] | None:
        """Trustworthy reference marginals: recomputed ones first, else published and verified."""
        if self.recomputed is not None:
            member = f"{self.name}.uai.MAR.exact"
            return parse_marginals(members(self.recomputed)[member], member)
        if self.row["reference_status"] != "verified":
            return None
        return parse_marginals(self._bytes(".uai.MAR"), f"{self.name}.uai.MAR")

    def log10_z(self) -> float | None:
        """Published log10 Z, where it can be trusted."""
        data = members(self.archive).get(f"{self.name}.uai.PR")
        if data is None or self.row["reference_status"] != "verified":
            return None
        return parse_pr(data, f"{self.name}.uai.PR")

    def _bytes(self, ending: str) -> bytes:
        try:
            return members(self.archive)[self.name + ending]
        except KeyError:
            raise ModelFormatError(
                f"{self.archive.name} holds no {self.name + ending}; the manifest and the archives "
                "do not belong together"
            ) from None


def data_folder() -> Path | None:
    """Folder that ICGI_DATA names, or None."""
    given = os.environ.get("ICGI_DATA")
    return Path(given) if given and (Path(given) / "manifest.csv").is_file() else None


def instances(folder: Path) -> Iterator[Instance]:
    """All instances of the manifest in its order."""
    path = folder / "manifest.csv"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ModelFormatError(f"{path} cannot be read ({error}); restore it") from error
    for number, row in enumerate(rows, 1):
        missing = [column for column in COLUMNS if row.get(column) is None]
        if missing:
            raise ModelFormatError(
                f"{path}, row {number}: no {' and no '.join(missing)}; a manifest has the columns "
                f"{', '.join(COLUMNS)}"
            )
        check_names((row["name"], row["family"]), "row of manifest.csv")
        archive = inside(folder, row["archive"], path.name)
        exact = None
        if row["recomputed_exact_file"]:
            exact = inside(folder, row["recomputed_exact_file"], path.name)
            exact = exact if f"{row['name']}.uai.MAR.exact" in members(exact) else None
        yield Instance(row["name"], row["family"], row, archive, exact)
