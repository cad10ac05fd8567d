"""Whether two versions of icgi give the same exact answers, on every tractable instance.

    ICGI_DATA=… PYTHONPATH=OLD/src python benchmarks/same_answers.py --store OLD.d    one version
    ICGI_DATA=… PYTHONPATH=NEW/src python benchmarks/same_answers.py --store NEW.d    the other
    python benchmarks/same_answers.py OLD.d NEW.d [--write]    lines of results/same_answers.txt

A version stores marginals and log Z of `jt`, with the evidence of the instance; a stopped run goes
on where it was. An instance that takes a version more than `--limit` seconds is left out,
and named. Differences are the largest of a probability, and that of log Z by the larger of |log Z|
and 1. Small instances come first.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results" / "same_answers.txt"
SAME = 1e-12
NO_ANSWER = np.empty(0)


def store(folder: Path, limit: float, stop_after: float) -> None:
    """Answers of the version at hand, one file an instance; an empty one where time ran out."""
    os.environ.setdefault("ICGI_CLOCK", "processor")
    import icgi
    from icgi.data.collection import data_folder, instances
    from icgi.errors import BudgetError

    print(icgi.__file__)
    folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    where = data_folder()
    found = [each for each in instances(where) if each.tractable] if where else []
    found.sort(key=lambda each: float(each.row["log2_max_clique_after_zero_pruning"]))
    for each in found:
        path = folder / f"{each.family}-{each.name}.npz"
        if path.exists():
            continue
        if time.perf_counter() - began > stop_after:
            print("stopped; the same command goes on from here")
            return
        budget = icgi.Budget(seconds=limit, table_bytes=10 * 2**30)
        try:
            answer = icgi.marginals(each.model(), dict(each.evidence()), "jt", budget)
            np.savez(path, probs=answer.probs, log_z=answer.log_z)
        except BudgetError:
            np.savez(path, probs=NO_ANSWER, log_z=np.nan)
    print(f"all {len(found)} instances")


def compare(one: Path, other: Path) -> list[str]:
    """What two folders of answers have in common, and where they differ."""
    names = sorted({path.name for path in (*one.glob("*.npz"), *other.glob("*.npz"))})
    rows, out, gaps, logs = [], [], [], []
    for name in names:
        both = [np.load(path / name) if (path / name).exists() else None for path in (one, other)]
        if any(each is None or not each["probs"].size for each in both):
            out.append(name.removesuffix(".npz"))
            continue
        first, second = both
        gaps.append(float(np.abs(first["probs"] - second["probs"]).max()))
        scale = max(1.0, abs(float(first["log_z"])))
        logs.append(abs(float(first["log_z"] - second["log_z"])) / scale)
        if max(gaps[-1], logs[-1]) > SAME:
            rows.append(f"{name.removesuffix('.npz'):50} {gaps[-1]:9.1e} {logs[-1]:9.1e}")
    lines = [f"{len(gaps)} instances answered by both versions, {len(rows)} beyond {SAME:g}"]
    if gaps:
        lines.append(
            f"largest difference of a probability {max(gaps):.1e} (median of the instances "
            f"{np.median(gaps):.1e}), of log Z {max(logs):.1e}"
        )
    return [*lines, *rows, f"left out ({len(out)}): {', '.join(out) or 'none'}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--store", type=Path, help="folder for the answers of this version")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds per instance")
    parser.add_argument("--stop-after", type=float, default=float("inf"), help="seconds of the run")
    parser.add_argument("--write", action="store_true", help="keep the lines")
    options = parser.parse_args()
    if options.store:
        store(options.store, options.limit, options.stop_after)
        return
    if len(options.folders) != 2:
        parser.error("give two folders of answers, or --store one")
    lines = compare(*options.folders)
    print("\n".join(lines))
    if options.write:
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
