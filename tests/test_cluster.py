"""Workers of dask.distributed, on loopback: the same bytes, every point once, clear refusals."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import demo_study
import numpy as np
import pytest

from gradprop import _execution, cluster
from gradprop._execution import WorkersLostError
from gradprop.cluster import OtherLibraryError, SchedulerError, dask_executor
from gradprop.store import Store
from gradprop.sweep import CannotTravelError, Sweep, SweepFailedError

DELIVERED = ("data/demo.npz", "data/demo.csv", "data/demo_people.csv", "demo.pdf", "demo.png")


def measure(point, rng):
    time.sleep(0.005)
    return {"x": rng.normal(), "pid": 0 if point["quiet"] else os.getpid()}


def measure_batch(points, rngs):
    return [measure(point, rng) for point, rng in zip(points, rngs, strict=True)]


def fatal(point, rng):
    if point["rho"] == 3.0:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"x": rng.normal()}


def sweep(n_points=100, quiet=True, **changed):
    grid = {"rho": [float(i) for i in range(n_points)]}
    function = changed.pop("measure", measure)
    changed = {"seeds": 2, "constants": {"quiet": quiet}, **changed}
    return Sweep("main", function, grid, rng_keys=["rho"], **changed)


def content(result):
    arrays = {**result.points, **result.values}
    return {name: (a.dtype.str, a.shape, a.tobytes()) for name, a in arrays.items()}


@pytest.fixture(scope="module")
def expected():
    return content(sweep().run(progress=False))


@pytest.fixture(scope="module")
def executor():
    with dask_executor("local", 2) as found:
        yield found


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch):
    monkeypatch.setattr(_execution, "GROUP_SECONDS", 0.1)


def test_local_workers_give_the_same_bytes(executor, expected, monkeypatch):
    assert content(sweep().run(executor=executor, progress=False)) == expected
    batched = sweep(measure_batch=measure_batch)
    assert content(batched.run(executor=executor, progress=False)) == expected
    monkeypatch.setattr(_execution, "GROUP_SECONDS", 1e-9)
    assert content(sweep(10).run(executor=executor, progress=False)) == content(
        sweep(10).run(progress=False)
    )
    pids = set(sweep(quiet=False).run(executor=executor, progress=False)["pid"].tolist())
    assert len(pids) == 2
    assert os.getpid() not in pids


def test_killed_workers_are_replaced(executor, expected, tmp_path):
    """A worker is killed three times in the middle of its points."""
    made, n_killed = sweep(200), []

    def kill():
        while len(n_killed) < 3:
            time.sleep(0.25)
            # Empty while all workers are being started again.
            for pid in list(executor._client.run(os.getpid, on_error="ignore").values())[:1]:
                os.kill(pid, signal.SIGKILL)
                n_killed.append(pid)

    killer = threading.Thread(target=kill)
    killer.start()
    with Store(tmp_path / "a.sqlite") as store:
        result = made.run(store, executor, progress=False)
        killer.join()
        assert len(list(store.records())) == 400
    assert len(n_killed) == 3
    assert content(result) == content(sweep(200).run(progress=False))


def test_a_point_that_kills_its_workers_fails_alone(executor):
    made = sweep(4, measure=fatal, seeds=1)
    with pytest.raises(SweepFailedError, match=r"1 of 4 points of main failed") as caught:
        made.run(executor=executor, progress=False)
    assert list(caught.value.failures) == ['{"rho":3,"seed":0}']
    assert "perhaps memory ran out" in str(caught.value)
    expected = sweep(3, measure=lambda point, rng: {"x": rng.normal()}, seeds=1)
    np.testing.assert_array_equal(caught.value.partial["x"], expected.run(progress=False)["x"])


def test_what_cannot_travel_is_said_before_starting(executor):
    lock = threading.Lock()
    with pytest.raises(CannotTravelError, match="define it with def at the top"):
        sweep(measure=lambda point, rng: {"x": lock.locked()}).run(executor=executor)


def test_a_running_scheduler_and_other_sources(executor, expected):
    address = executor._address
    assert address.startswith("tcp://127.0.0.1:")
    with dask_executor(address) as other:
        other._sources = None  # other modules may be under work while this runs
        assert content(sweep().run(executor=other, progress=False)) == expected
        other._sources = "0.0.0+else"
        with pytest.raises(OtherLibraryError, match=r"the driver 0\.0\.0"):
            sweep().run(executor=other, progress=False)


def test_no_scheduler(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(cluster, "_ANSWER_SECONDS", 1.0)
    start = time.monotonic()
    with (
        pytest.raises(SchedulerError, match=r"tcp://127.0.0.1:1 within 1 s .*--scheduler local"),
        dask_executor("tcp://127.0.0.1:1"),
    ):
        pass
    assert time.monotonic() - start < 5
    for address in ("nonsense", "http://127.0.0.1:1", "tcp://127.0.0.1", 3):
        with pytest.raises(ValueError, match="'local' or tcp://HOST:PORT"), dask_executor(address):
            pass
    with pytest.raises(ValueError, match="`n_workers` must be"), dask_executor("local", 0):
        pass
    out = ["--out", str(tmp_path)]
    assert demo_study.STUDY.main([*out, "--scheduler", "tcp://127.0.0.1:1"]) == 2
    assert "no scheduler answers at tcp://127.0.0.1:1" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        demo_study.STUDY.main([*out, "--scheduler", "nonsense"])
    assert "tcp://HOST:PORT" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(SchedulerError, match=r"'gradprop\[distributed\]'"), dask_executor():
        pass


def test_a_scheduler_that_stays_away(monkeypatch):
    monkeypatch.setattr(cluster, "_RETURN_SECONDS", 0.2)
    monkeypatch.setattr(cluster, "_ANSWER_SECONDS", 0.1)
    lost = object.__new__(cluster.DaskExecutor)
    lost._address, lost._client = "tcp://127.0.0.1:1", type("Closed", (), {"status": "closed"})()
    with pytest.raises(WorkersLostError, match="did not come back within 0 s"):
        lost.submit(print)


def test_a_study_on_a_local_cluster(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    assert demo_study.STUDY.main(["--out", str(one), "--jobs", "1"]) == 0
    assert demo_study.STUDY.main(["--out", str(two), "--scheduler", "local", "--jobs", "2"]) == 0
    for name in DELIVERED:
        assert (one / name).read_bytes() == (two / name).read_bytes()
