"""References of the glasses of the tables by `pt-gpu`: two independent runs of each model.

    PYTHONPATH=src python benchmarks/gpu_references.py --out FOLDER --seconds 540 [--only "EA 3D"]
    PYTHONPATH=src python benchmarks/gpu_references.py --import FOLDER/references.npz

The first command needs a CUDA device and CuPy, and no published instances: it draws the models of
table 2 and `anytime` at small scale, tempers all of a row in one batch, and writes marginals,
errors, R-hat and round trips of both runs to FOLDER/references.npz, after every row anew. Seconds
are those of the whole command; rows have shares of them by their `patient`. The second command,
anywhere, draws the models again, refuses where a digest differs, and adds the runs to the
reference lines of the tables (`references-TABLE-SCALE.jsonl`), where `icgi bench` finds them;
answers are then compared anew. `--engine pt` tries the first without a device.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from icgi.bench import references
from icgi.bench.table import Case, Device, References
from icgi.bench.tables import TABLES
from icgi.bench.tables.anytime import small_glasses as anytime
from icgi.bench.tables.table2 import small_glasses as table2
from icgi.data.jobs.job import Question
from icgi.data.jobs.manifest import Manifest
from icgi.engines import parse_engine
from icgi.inference import Budget, Marginals, Status
from icgi.metrics import mean_absolute_error
from icgi.sampling.gpu import GpuTempering

SCALE = "small"
DRAWS = {"table2": table2, "anytime": anytime}
SAVED = "references.npz"
FOLDER = Path("benchmarks/results/bench")


@dataclass(frozen=True, slots=True)
class Row:
    """Models of one row of a table, and the share of the time that their references have."""

    table: str
    group: str
    cases: tuple[Case, ...]
    device: Device

    @property
    def share(self) -> float:
        """Seconds of a run relative to those of other rows."""
        return self.device.patient.get(self.group, 1.0) * self.device.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder to write to")
    parser.add_argument("--seconds", type=float, default=540.0, help="of the whole command")
    parser.add_argument("--only", action="append", help="rows with this in their name")
    parser.add_argument("--skip", action="append", default=[], help="rows to leave out")
    parser.add_argument("--engine", choices=("pt-gpu", "pt"), default="pt-gpu")
    parser.add_argument("--import", type=Path, dest="file", help="add the runs of a file")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the tables' lines")
    given = parser.parse_args()
    if given.file:
        add(given.file, given.folder)
    elif given.out:
        make(given.out, given.seconds, given.engine, chosen(given.only or [""], given.skip))
    else:
        parser.error("give --out or --import")


def rows() -> Iterator[Row]:
    """Rows of drawn models, by tables and in their order; the longest come last."""
    for table, draws in DRAWS.items():
        groups: dict[str, list[Case]] = {}
        for case in draws():
            groups.setdefault(case.group, []).append(case)
        device = settings_of(table).device
        assert device is not None
        for group, cases in groups.items():
            yield Row(table, group, tuple(cases), device)


def settings_of(table: str) -> References:
    found = TABLES[table].scales[SCALE].references
    assert found is not None
    return found


def chosen(only: Sequence[str], skip: Sequence[str]) -> list[Row]:
    found = [
        row for row in rows()
        if any(word in f"{row.table} {row.group}" for word in only)
        and not any(word in f"{row.table} {row.group}" for word in skip)
    ]  # fmt: skip
    return sorted(found, key=lambda row: row.share)


def make(out: Path, seconds: float, engine: str, todo: list[Row]) -> None:
    """Run all rows twice and write what there is after each."""
    os.environ.pop("ICGI_CLOCK", None)
    out.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + seconds
    arrays: dict[str, Any] = {}
    about: list[dict[str, Any]] = []
    for at, row in enumerate(todo):
        left = ends - time.monotonic()
        each = 0.5 * left * row.share / sum(r.share for r in todo[at:])
        models = [case.load() for case in row.cases]
        text = references.on_device(row.device, row.group) if engine == "pt-gpu" else engine
        answers = [run(text, models, seed, max(each, 0.2)) for seed in references.RUNS]
        for k, (case, question) in enumerate(zip(row.cases, models, strict=True)):
            name = f"{row.table}-{at}-{k}"
            about.append({
                "array": name, "table": row.table, "group": row.group, "case": case.name,
                "digest": question.digest, "engine": text,
                "runs": [_words(found[k], spent) for found, spent in answers],
            })  # fmt: skip
            for part, (found, _) in enumerate(answers):
                arrays |= _arrays(f"{name}-{part}", found[k])
            one, two = (found[k].probs for found, _ in answers)
            print(
                f"{row.table} | {case.name} | apart {mean_absolute_error(one, two):.1e} | "
                + " | ".join(_said(found[k], spent) for found, spent in answers),
                flush=True,
            )
        machine = {"hardware": _device(engine), "python": platform.python_version()}
        text = json.dumps({"machine": machine, "models": about}, ensure_ascii=False)
        draft = out / f"draft-{SAVED}"
        np.savez_compressed(draft, about=np.array(text), **arrays)
        draft.replace(out / SAVED)


def run(
    engine: str, models: list[Question], seed: int, seconds: float
) -> tuple[list[Marginals], float]:
    """Answers of one run of all models of a row, and the seconds that it took."""
    made, rng, began = parse_engine(engine), np.random.default_rng(seed), time.monotonic()
    asked = [question.model for question in models]
    if isinstance(made, GpuTempering):
        found = made.run(asked, Budget(10**9, seconds, table_bytes=2**35), rng)
    else:
        found = [made(model, Budget(None, seconds / len(asked)), rng) for model in asked]
    return found, time.monotonic() - began


def _words(found: Marginals, seconds: float) -> dict[str, Any]:
    stats = {key: float(value) for key, value in found.stats.items()}
    return {"status": found.status.value, "seconds": seconds, "stats": stats}


def _arrays(name: str, found: Marginals) -> dict[str, Any]:
    error = found.std_error if found.std_error is not None else np.zeros(0)
    ratio = found.rhat if found.rhat is not None else np.zeros(0)
    return {f"{name}-probs": found.probs, f"{name}-error": error, f"{name}-rhat": ratio}


def _said(found: Marginals, seconds: float) -> str:
    stats, error = found.stats, found.std_error
    stated = float("nan") if error is None else float(error.sum(1).mean())
    return (
        f"{found.status.value}, stated {stated:.1e}, R-hat {stats.get('rhat', np.nan):.3f}, "
        f"trips {stats.get('round_trips_min', np.nan):.0f} at least, "
        f"swaps {stats.get('swap_rate_min', np.nan):.2f}, "
        f"{stats.get('sweeps', np.nan):.0f} sweeps, {seconds:.1f} s"
    )


def _device(engine: str) -> str:
    if engine != "pt-gpu":
        return platform.processor() or platform.machine()
    from icgi.sampling.gpu_batches import cupy

    return str(cupy().cuda.runtime.getDeviceProperties(0)["name"].decode())


def add(file: Path, folder: Path) -> None:
    """Add the runs of a file to the references of the tables, and print how they agree."""
    known = {(row.table, case.name): case for row in rows() for case in row.cases}
    with np.load(file, allow_pickle=False) as saved:
        about = json.loads(str(saved["about"]))
        if folder == FOLDER and any(each["engine"] == "pt" for each in about["models"]):
            raise SystemExit(f"{file} is a trial without a device; give --folder")
        lines: dict[str, list[dict[str, Any]]] = {}
        for each in about["models"]:
            case = known[each["table"], each["case"]]
            question = case.load()
            if question.digest != each["digest"]:
                raise SystemExit(
                    f"{case.name} is another model there ({each['digest']}) than here "
                    f"({question.digest}): the families or numpy differ; nothing was added"
                )
            parts = references.jobs(question, case.group, settings_of(each["table"]))
            for k, seed in enumerate(references.RUNS):
                own = each["runs"][k]
                line = references.line_of(question, _marginals(saved, each, k), own["seconds"])
                part = f"{each['engine'].partition(':')[0]} {seed}"
                if each["engine"] != parts[part].settings["engine"]:
                    raise SystemExit(
                        f"{case.name} was asked of {each['engine']}, the table asks "
                        f"{parts[part].settings['engine']}; nothing was added"
                    )
                line |= {"memory": 0, "hardware": about["machine"]["hardware"]}
                line = references.kept(case, part, parts[part], line)
                lines.setdefault(each["table"], []).append(line)
    for table, added in lines.items():
        manifest = Manifest(folder / f"references-{table}-{SCALE}.jsonl")
        with manifest.writing():
            manifest.append(added)
        found = references.of_cases(manifest, settings_of(table))
        for name in dict.fromkeys(line["case"] for line in added):
            own = found[name]
            others = ", ".join(
                f"{other} {told['apart']:.1e} off" for other, told in own["others"].items()
                if told["apart"] is not None
            )  # fmt: skip
            print(
                f"{table} | {name} | {own['method']}, error {own['error']:.1e}, "
                f"apart {own['apart']:.1e}, R-hat {own['rhat']:.3f} | {others}"
            )


def _marginals(saved: Any, each: dict[str, Any], k: int) -> Marginals:
    name, own = f"{each['array']}-{k}", each["runs"][k]
    error = saved[f"{name}-error"]
    return Marginals(
        saved[f"{name}-probs"],
        Status(own["status"]),
        std_error=error if error.size else None,
        stats=own["stats"],
    )


if __name__ == "__main__":
    main()
