"""The paper's SK set labelled by processes and by Ray, compared byte for byte.

    python benchmarks/same_labels.py [--scale small] [--workers 2] [--cluster ray]

Labels are the first run of tempering (2,000 sweeps) of every instance, so that no clock decides.
Files of models and marginals are compared as they are, answers but for the seconds they took.
"""

import argparse
import tempfile
import time
from pathlib import Path

from icgi.data.jobs.executors import executor
from icgi.data.labels import Labelling, label_set
from icgi.data.sources import source
from icgi.data.store import LabelledSet

FIRST_RUN = Labelling(seconds=3600.0, std_error=1.0)  # of any error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scale", default="small")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cluster", default="ray")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sets = []
        for place in ("here", options.cluster):
            rows = source("sk-paper", options.scale)
            about = {"source": "sk-paper", "scale": options.scale}
            stored = LabelledSet.create(Path(folder) / f"{len(sets)}", rows, "glasses", about)
            began = time.monotonic()
            count = label_set(stored, FIRST_RUN, executor=executor(place, options.workers))
            print(f"{place}: {count} labels, {time.monotonic() - began:.0f} s", flush=True)
            sets.append(stored)
        different = [name for name in files(sets[0]) if not same(name, *sets)]
    print(f"{len(files(sets[0]))} files, {len(different)} different {' '.join(different)}")
    raise SystemExit(bool(different))


def files(stored: LabelledSet) -> list[str]:
    kinds = ("models", "marginals", "answers")
    return [shard["file"] for kind in kinds for shard in stored.manifest[kind]]


def same(name: str, one: LabelledSet, two: LabelledSet) -> bool:
    if name in {shard["file"] for shard in one.manifest["answers"]}:
        a, b = (stored.table("answers", name).drop_columns("seconds") for stored in (one, two))
        return bool(a.equals(b))
    return (one.folder / name).read_bytes() == (two.folder / name).read_bytes()


if __name__ == "__main__":
    main()
