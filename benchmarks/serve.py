"""Load on `icgi serve` at this machine: many questions at once, hostile models, kills.

python benchmarks/serve.py
"""

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
import psutil

import icgi

QUESTIONS, AT_ONCE = 600, 200
LARGE = 120
JOBS = 24
SIDE = 6
PATIENCE = 120.0  # seconds for any phase


def grid() -> icgi.FactorGraph:
    rng = np.random.default_rng(18)
    at = lambda r, c: r * SIDE + c  # noqa: E731
    pairs = [(at(r, c), at(r, c + 1)) for r in range(SIDE) for c in range(SIDE - 1)]
    pairs += [(at(r, c), at(r + 1, c)) for r in range(SIDE - 1) for c in range(SIDE)]
    factors = [((i,), np.exp(rng.normal(size=2))) for i in range(SIDE * SIDE)]
    return icgi.from_factors([*factors, *((p, np.exp(rng.normal(size=(2, 2)))) for p in pairs)])


class Service:
    """The command itself, as a process."""

    def __init__(self, folder: Path) -> None:
        self.words = [
            sys.executable, "-m", "icgi", "serve", str(folder / "grid.uai"), "--port", "0",
            "--store", str(folder / "store.sqlite"), "--memory", "1G", "--queue", "64",
        ]  # fmt: skip
        self.start()

    def start(self) -> None:
        """Start it, and learn its address."""
        self.process = subprocess.Popen(self.words, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.address = self.process.stderr.readline().strip().rstrip("/")

    def bytes(self) -> int:
        """Resident memory of it and its workers."""
        here = psutil.Process(self.process.pid)
        return sum(p.memory_info().rss for p in [here, *here.children(recursive=True)])

    def workers(self) -> list[int]:
        """Ids of its worker processes."""
        return [p.pid for p in psutil.Process(self.process.pid).children()]

    def stop(self) -> None:
        """End it as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)


async def ready(client: httpx.AsyncClient) -> str:
    for _ in range(600):
        try:
            if found := (await client.get("/models")).json():
                return found[0]["id"]
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.1)
    raise RuntimeError("the service did not start")


async def many_questions(client: httpx.AsyncClient, model: str) -> None:
    """Distinct questions at once; refused ones come back after the time that the answer names."""
    door = asyncio.Semaphore(AT_ONCE)
    graph, refused, took = grid(), 0, []
    rng = np.random.default_rng(0)
    evidences = [
        {str(i): str(rng.integers(2)) for i in rng.choice(SIDE**2, 4, replace=False).tolist()}
        for _ in range(QUESTIONS)
    ]

    async def one(evidence: dict[str, str]) -> dict:
        nonlocal refused
        async with door:
            began = time.perf_counter()
            while True:
                asked = {"model": model, "evidence": evidence, "seconds": 5.0}
                found = await client.post("/marginals?wait=60", json=asked)
                if found.status_code != 429:
                    break
                refused += 1
                await asyncio.sleep(float(found.headers["retry-after"]) * rng.uniform(0.2, 1.0))
            took.append(time.perf_counter() - began)
            return found.raise_for_status().json()

    began = time.perf_counter()
    jobs = await asyncio.gather(*map(one, evidences))
    wall = time.perf_counter() - began
    wrong = 0
    for evidence, job in zip(evidences, jobs, strict=True):
        probs = [list(r["probabilities"].values()) for r in job["result"]["marginals"]]
        wrong += not np.allclose(probs, icgi.marginals(graph, evidence).probs, atol=1e-9)
    slowest = statistics.quantiles(took, n=100)
    print(
        f"{QUESTIONS} questions, {AT_ONCE} at a time: {wall:.1f} s, {QUESTIONS / wall:.0f} per "
        f"second; median {statistics.median(took):.2f} s, 99 of 100 within {slowest[98]:.2f} s; "
        f"refused for now (429) {refused} times; unanswered {QUESTIONS - len(jobs)}, wrong {wrong}"
    )


def hostile(k: int) -> bytes:
    kinds = [
        b"MARKOV 1 2000000000 0",  # a variable of many states
        b"MARKOV 999999999 " + b"2 " * 1000,  # more variables than text
        b"MARKOV 40\n" + b"2 " * 40 + b"\n1\n40 " + b" ".join(b"%d" % i for i in range(40)),
        b"x" * (2**25 + 1 + k),  # more than may be sent
        b"MARKOV 3000000 " + b"2 " * 3_000_000 + b"%d" % k,  # large, and not complete
        b"network x { " + b"variable a { type discrete [ 999999999 ] { a }; }" * 1000,
    ]
    return kinds[k % len(kinds)]


async def flood(client: httpx.AsyncClient, model: str, service: Service) -> None:
    """Models that are too large or lie about their size, while somebody asks a small question."""
    before, peak, codes, waits = service.bytes(), 0, [], []
    door = asyncio.Semaphore(8)

    async def one(k: int) -> None:
        async with door:
            try:
                found = await client.post("/models?name=flood", content=hostile(k))
                codes.append(str(found.status_code))
            except httpx.TimeoutException:
                codes.append("no answer in time")
            except httpx.TransportError:
                codes.append("closed while sending")

    flooding = asyncio.gather(*(one(k) for k in range(LARGE)))
    n = 0
    while not flooding.done():
        began = time.perf_counter()
        asked = {"model": model, "evidence": {"0": "1"}, "seed": 1000 + n, "seconds": 2.0}
        await client.post("/marginals?wait=60", json=asked)
        waits.append(time.perf_counter() - began)
        peak, n = max(peak, service.bytes()), n + 1
        await asyncio.sleep(0.05)
    await flooding
    kept = len((await client.get("/models")).json())
    counted = {code: codes.count(code) for code in sorted(set(codes))}
    print(
        f"{LARGE} hostile models: answers {counted}, models let in {kept - 1}; meanwhile {n} small "
        f"questions, the slowest {max(waits):.2f} s; memory of all processes "
        f"{before / 1e6:.0f} MB before, {peak / 1e6:.0f} MB at most"
    )


async def kills(client: httpx.AsyncClient, model: str, service: Service) -> list[str]:
    """Kill workers, then the service itself, while jobs are at work; returns the jobs."""
    jobs = []
    for seed in range(JOBS):
        asked = {"model": model, "engine": "pt", "seconds": 1.0, "seed": seed}
        found = await client.post("/marginals?wait=0", json=asked)
        jobs.append(found.raise_for_status().json()["id"])
    await asyncio.sleep(1.5)
    for worker in service.workers():
        os.kill(worker, signal.SIGKILL)
    await asyncio.sleep(8.0)
    left = service.workers()
    service.process.kill()
    service.process.wait()
    await asyncio.sleep(7.0)
    print(
        f"{JOBS} jobs of 1 s: all workers killed, later the service; "
        f"workers left {sum(map(psutil.pid_exists, left))}"
    )
    return jobs


async def afterwards(client: httpx.AsyncClient, jobs: list[str]) -> None:
    began, states = time.perf_counter(), []
    for job in jobs:
        while True:
            found = (await client.get(f"/jobs/{job}?wait=10")).json()
            if found["state"] not in ("queued", "running"):
                break
            if time.perf_counter() - began > PATIENCE:
                break
        states.append(found["state"])
    counted = {state: states.count(state) for state in sorted(set(states))}
    print(f"after a restart: {counted} of {len(jobs)}, {time.perf_counter() - began:.0f} s later")


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        icgi.save(grid(), folder / "grid.uai")
        service = Service(folder)
        limits = httpx.Limits(max_connections=AT_ONCE + 10)
        options = {"limits": limits, "timeout": PATIENCE}
        try:
            async with httpx.AsyncClient(base_url=service.address, **options) as client:
                model = await ready(client)
                await many_questions(client, model)
                await flood(client, model, service)
                jobs = await kills(client, model, service)
            service.start()
            async with httpx.AsyncClient(base_url=service.address, **options) as client:
                await ready(client)
                await afterwards(client, jobs)
        finally:
            if service.process.poll() is None:
                service.stop()


if __name__ == "__main__":
    asyncio.run(asyncio.wait_for(main(), 500))
