"""SLURM against a stand-in that runs the array, Ray against a real cluster on this machine."""

import os
import sys
import time
from pathlib import Path

import pytest
import works

from icgi.data.jobs.manifest import Manifest
from icgi.data.jobs.ray import Ray
from icgi.data.jobs.run import Serial, run_jobs
from icgi.data.jobs.slurm import Slurm
from icgi.errors import IcgiError

SBATCH = """\
#!/bin/sh
# runs the tasks of an array one after the other, as the lines of the script say
script="$2"
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\)%.*/\\1/p' "$script")
log=$(sed -n 's/^#SBATCH --output=\\(.*\\)-%a.log/\\1/p' "$script")
(
  for k in $(seq 0 "$last"); do
    SLURM_ARRAY_TASK_ID=$k sh "$script" > "$log-$k.log" 2>&1
  done
  rm -f "$HERE/running"
) > /dev/null 2>&1 &
touch "$HERE/running"
echo "4711;cluster"
"""
SQUEUE = '#!/bin/sh\n[ -e "$HERE/running" ] && echo "4711 running" || true\n'


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """SLURM whose `sbatch` runs the array on this machine."""
    place = tmp_path / "bin"
    place.mkdir()
    for name, text in {"sbatch": SBATCH, "squeue": SQUEUE, "scancel": "#!/bin/sh\n"}.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HERE", str(tmp_path))
    return Slurm(tmp_path / "shared", workers=1, options=("--time=0:10:00",), poll=0.05)


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands in for SLURM")
def test_an_array_does_every_job_once(manifest: Manifest, slurm: Slurm, tmp_path: Path) -> None:
    jobs = works.jobs(9, folder=str(tmp_path))
    run_jobs(jobs[:2], manifest, Serial())
    assert run_jobs(jobs, manifest, slurm) == 7
    assert {line["status"] for line in manifest.lines()} == {"done"}
    assert all((tmp_path / f"q{k}").read_text() == "x" for k in range(9))
    assert not list(slurm.folder.iterdir())  # nothing is left behind
    assert run_jobs(jobs, manifest, slurm) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands in for SLURM")
def test_a_killed_task_loses_its_own_jobs_and_says_so(manifest: Manifest, slurm: Slurm) -> None:
    jobs = works.jobs(8, "suicidal", victim="q3")  # four tasks of two jobs
    assert run_jobs(jobs, manifest, slurm) == 8
    lines = {line["name"]: line for line in manifest.lines()}
    assert "SLURM task ended" in lines.pop("q3")["message"]
    assert {line["status"] for line in lines.values()} == {"done"}


def test_without_slurm_that_is_said(
    manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(IcgiError, match="no sbatch"):
        run_jobs(works.jobs(1), manifest, Slurm(tmp_path))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_does_what_processes_do_and_survives_a_killed_worker(
    manifest: Manifest, tmp_path: Path
) -> None:
    jobs = works.jobs(30, "suicidal", victim="q7", once=str(tmp_path / "died"))
    assert run_jobs(jobs, manifest, Ray()) == 30
    assert (tmp_path / "died").exists()
    assert {line["status"] for line in manifest.lines()} == {"done"}
    other = Manifest(tmp_path / "other.jsonl")
    run_jobs(jobs, other, Serial())
    assert set(other.finished()) == set(manifest.finished())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_gives_up_on_a_job_that_kills_every_worker(manifest: Manifest) -> None:
    run_jobs(works.jobs(6, "suicidal", victim="q2"), manifest, Ray())
    lines = {line["name"]: line for line in manifest.lines()}
    assert "lost 3 times" in lines.pop("q2")["message"]
    assert {line["status"] for line in lines.values()} == {"done"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_ray_node_that_is_killed_costs_nothing_but_time(manifest: Manifest) -> None:
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    lost, _ = (cluster.add_node(num_cpus=1) for _ in range(2))
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        cluster.wait_for_nodes()
        assert ray.cluster_resources()["CPU"] == 3
        killed: list[int] = []

        def kill(line: dict) -> None:
            if not killed and len(manifest.lines()) >= 6:
                killed.append(lost.all_processes["raylet"][0].process.pid)
                cluster.remove_node(lost, allow_graceful=False)

        jobs = works.jobs(30, "slow", seconds=0.3)
        assert run_jobs(jobs, manifest, Ray(), kill) == 30
        assert killed
        assert {line["status"] for line in manifest.lines()} == {"done"}
        assert len({line["key"] for line in manifest.lines()}) == 30
        until = time.monotonic() + 120  # Ray asks now and then who is still there
        while ray.cluster_resources()["CPU"] != 2 and time.monotonic() < until:
            time.sleep(0.2)
        assert ray.cluster_resources()["CPU"] == 2
    finally:
        ray.shutdown()
        cluster.shutdown()
