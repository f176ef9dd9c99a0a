"""Is a study that is killed, whose workers die or whose store is damaged, the same byte for byte?

python benchmarks/sweep_faults.py [kills] [workers] [flips]      (default: all three; 4 min)
"""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "tests" / "demo_study.py"
DELIVERED = ("demo.npz", "demo.csv", "demo_people.csv")
N_KILLS, N_WORKER_KILLS, N_FLIPS = 50, 20, 500
PORT = 28786


def start(out: Path, jobs: int, log: Path) -> subprocess.Popen[bytes]:
    flags = ["--out", str(out), "--jobs", str(jobs), "--seeds", "100"]
    environment = {"PYTHONPATH": str(ROOT), "DEMO_PAUSE": "0.02", "DEMO_LOG": str(log)}
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *flags],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def lines(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


def kills(folder: Path) -> None:
    """kill -9 of the whole process group, at random moments after it began to compute."""
    whole, out, log = folder / "whole", folder / "out", folder / "log"
    reference, rng, n_killed = start(whole, 2, folder / "ignored"), random.Random(0), 0
    assert reference.wait() == 0
    while n_killed < N_KILLS:
        before, process = lines(log), start(out, 1 + n_killed % 2, log)
        while process.poll() is None and lines(log) == before:
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.25))
        if process.poll() is not None:
            break
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        n_killed += 1
    assert start(out, 2, log).wait() == 0
    computed = [tuple(line.split()[1:]) for line in log.read_text().splitlines()]
    n_again = len(computed) - len(set(computed))
    same = all(
        (whole / "data" / name).read_bytes() == (out / "data" / name).read_bytes()
        for name in DELIVERED
    )
    print(f"kill -9: {n_killed} kills, {len(set(computed))} points, {n_again} computed again")
    print(
        f"         {n_again / max(n_killed, 1):.2f} points a kill (a group: 3); same bytes: {same}"
    )
    assert same


def measure(point, rng):
    time.sleep(0.02)
    return {"x": rng.normal()}


def up(kind: str, *flags: str) -> subprocess.Popen[bytes]:
    # By the command's module, but with the folder of this script, not the current one, in the path.
    code = f"from distributed.cli.{kind} import main; main()"
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code, *flags],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent)])},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


class Cluster:
    """A scheduler and two workers on loopback, in processes that can be killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.up()

    def up(self) -> None:
        here = ("--host", "127.0.0.1", "--no-dashboard")
        self.scheduler = up("dask_scheduler", *here, "--port", str(PORT))
        place = ("--nworkers", "2", "--nthreads", "1", "--local-directory", str(self._folder))
        self.workers = up("dask_worker", f"tcp://127.0.0.1:{PORT}", *here, *place)

    def down(self) -> None:
        for process in (self.workers, self.scheduler):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def workers(folder: Path) -> None:
    """Workers killed in the middle of a group; the scheduler killed and started again once."""
    from sweep_faults import measure  # as the workers import it

    from gradprop import _execution
    from gradprop.cluster import dask_executor
    from gradprop.store import Store
    from gradprop.sweep import Sweep

    _execution.GROUP_SECONDS = 0.3
    made = Sweep("main", measure, {"number": range(2000)}, seeds=1, rng_keys=["number"])
    n_killed, finished, cluster = [0], threading.Event(), Cluster(folder)

    def havoc(executor) -> None:
        rng = random.Random(1)
        while n_killed[0] <= N_WORKER_KILLS and not finished.is_set():
            time.sleep(rng.uniform(0.2, 1.0))
            if n_killed[0] == N_WORKER_KILLS // 2:
                cluster.down()
                cluster.up()
                n_killed[0] += 1
            try:
                pids = list(executor._client.run(os.getpid, on_error="ignore").values())
                if pids:
                    os.kill(rng.choice(pids), signal.SIGKILL)
                    n_killed[0] += 1
            except (OSError, RuntimeError, ValueError):
                continue  # the scheduler is away

    try:
        with dask_executor(f"tcp://127.0.0.1:{PORT}") as executor, Store() as store:
            threading.Thread(target=havoc, args=(executor,), daemon=True).start()
            result = made.run(store, executor, progress=False)
            finished.set()
            n_records = len(list(store.records()))
    finally:
        cluster.down()
    same = result["x"].tobytes() == made.run(executor=2, progress=False)["x"].tobytes()
    print(f"workers: {n_killed[0] - 1} killed, scheduler restarted once: {n_records} records of")
    print(f"         2000 points; same bytes as serial: {same}")
    assert same


def flips(folder: Path) -> None:
    """One random bit of the store changed: what is then served, lost, and said?"""
    from gradprop.store import Record, Store

    logging.getLogger("gradprop").setLevel(logging.ERROR)
    rng, path = random.Random(2), folder / "a.sqlite"
    records = {Record("main", "s", str(i), "1", rng.randbytes(600)) for i in range(200)}
    with Store(path) as store:
        store.put(sorted(records, key=lambda record: int(record.key)))
    whole, n_wrong, n_silent, lost = path.read_bytes(), 0, 0, []
    for i in range(N_FLIPS):
        place = folder / str(i)
        place.mkdir()
        changed = bytearray(whole)
        changed[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        (place / "a.sqlite").write_bytes(changed)
        with Store(place / "a.sqlite") as store:
            served = set(store.records())
        n_wrong += len(served - records)
        lost.append(len(records - served))
        n_silent += bool(lost[-1]) and not (place / "a.set-aside-1.sqlite").exists()
    print(f"flips: {N_FLIPS} single bits: {n_wrong} wrong values, {n_silent} losses not named,")
    print(f"       records to compute again: {sum(lost) / N_FLIPS:.2f} a flip, {max(lost)} at most")
    assert n_wrong == n_silent == 0


if __name__ == "__main__":
    for name in sys.argv[1:] or ("kills", "workers", "flips"):
        with tempfile.TemporaryDirectory() as temporary:
            {"kills": kills, "workers": workers, "flips": flips}[name](Path(temporary))
