"""Batches, costs, Ctrl-C and lost workers: none changes a byte or loses a finished point."""

from __future__ import annotations

import collections
import os
import signal
import threading
import time
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor

import numpy as np
import pytest

from gradprop import _execution, _work
from gradprop._execution import WorkerDiedError
from gradprop.store import Store
from gradprop.sweep import BatchDiffersError, Sweep, SweepFailedError, SweepInterrupted

GRID = {"rho": [0.5, 1.0, 1.5, 2.0], "n": [3]}


def measure(point, rng):
    if point["rho"] == point.get("bad"):
        raise ArithmeticError("no luck")
    noise = rng.normal(size=point["n"])
    return {"noise": noise, "total": point["rho"] * noise.sum(), "name": f"at {point['rho']}"}


def measure_batch(points, rngs):
    SIZES.append(len(points))
    return [measure(point, rng) for point, rng in zip(points, rngs, strict=True)]


SIZES: list[int] = []


def sweep(seeds=50, **changed):
    return Sweep("main", changed.pop("measure", measure), GRID, seeds=seeds, rng_keys=[], **changed)


def content(result):
    arrays = {**result.points, **result.values}
    return {name: (a.dtype.str, a.shape, a.tobytes()) for name, a in arrays.items()}


# batches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [None, 2])
def test_batches_give_the_same_bytes(workers):
    SIZES.clear()
    expected = content(sweep().run(progress=False))
    batched = sweep(measure_batch=measure_batch)
    if workers is None:
        assert content(batched.run(progress=False)) == expected
    else:
        with ThreadPoolExecutor(workers) as pool:
            assert content(batched.run(executor=pool, progress=False)) == expected
    assert max(SIZES) > 8
    assert max(SIZES) <= _work.BATCH
    assert sum(SIZES) >= 200 - 64


def test_a_point_that_fails_in_a_batch_is_told_from_the_others():
    made = sweep(measure_batch=measure_batch, constants={"bad": 1.5})
    with pytest.raises(SweepFailedError, match="50 of 200 points of main failed") as caught:
        made.run(progress=False)
    assert all('"rho":1.5' in key for key in caught.value.failures)
    expected = sweep().run(progress=False)
    for rho in (0.5, 1.0, 2.0):
        assert content(caught.value.partial.select(rho=rho)) == content(expected.select(rho=rho))


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (lambda p, r: [{**measure(q, s), "total": 0.0} for q, s in zip(p, r, strict=True)], "`tot"),
        (lambda p, r: [{"total": 0.0} for q in p], "`name`, `noise`, `total`"),
        (lambda p, r: measure_batch(p, r)[:1], "fails where `measure` does not: ValueError"),
        (lambda p, r: [measure(q, r[0]) for q in p], "differ in `noise`, `total`"),
    ],
)
def test_other_batches_are_refused_before_anything_is_kept(batch, text):
    with Store() as store:
        with pytest.raises(BatchDiffersError, match=text):
            sweep(measure_batch=batch).run(store, progress=False)
        assert not list(store.records())


def test_a_batch_is_part_of_the_code():
    codes = {made.code() for made in (sweep(), sweep(measure_batch=measure_batch))}
    assert len(codes) == 2


# costs ---------------------------------------------------------------------------------------


def test_dear_points_come_first_and_results_stay(monkeypatch):
    order = []

    def noted(point, rng):
        order.append(point["rho"])
        return measure(point, rng)

    made = sweep(2, measure=noted, cost=lambda point: point["rho"] ** 2)
    result = made.run(progress=False)
    assert order == sorted(order, reverse=True)
    assert content(result) == content(sweep(2).run(progress=False))


def test_groups_are_cut_by_cost():
    points = [{"cost": cost} for cost in (8.0, 4.0, 4.0, *[1.0] * 84)]
    groups = _execution._Groups(points, lambda point: point["cost"])
    answer: Future = Future()
    answer.set_result(([(b"", False)], 1.0))
    first = groups.take(1)
    assert first == points[:1]
    assert len(groups.outcomes(first, answer)) == 1
    # 1 s for a cost of 8, so a second's worth is 4 + 4, then eight of 1.
    assert [len(groups.take(1)) for _ in range(3)] == [2, 8, 8]


def test_groups_last_a_thousandth_of_long_work():
    points = [{"i": i} for i in range(40_001)]
    groups = _execution._Groups(points, lambda point: 1.0)
    answer: Future = Future()
    answer.set_result(([(b"", False)], 0.5))
    groups.outcomes(groups.take(2), answer)
    # 0.5 s a point: 10 000 s are left to each of two workers, 0.25 s to each of many
    assert groups.seconds(2) == pytest.approx(10.0)
    assert len(groups.take(2)) == 20
    assert groups.seconds(10**5) == 1.0
    assert groups.seconds(10**5) * 2 >= len(groups.take(10**4))
    slow: Future = Future()
    slow.set_result(([(b"", False)], 1e6))
    groups.outcomes(groups.take(2), slow)
    assert groups.seconds(2) == 60.0


@pytest.mark.parametrize("found", [0.0, -1.0, np.nan, np.inf])
def test_costs_are_positive(found):
    with pytest.raises(ValueError, match="`cost` must give positive numbers"):
        sweep(cost=lambda point: found).run(progress=False)
    with pytest.raises(TypeError, match="`cost` must be a function"):
        sweep(cost=3)
    with pytest.raises(TypeError, match="`measure_batch` must be a function"):
        sweep(measure_batch=3)


# Ctrl-C --------------------------------------------------------------------------------------


def pressing(at, times):
    """A measure that gets Ctrl-C so many times in the middle of one point."""
    calls = collections.deque()  # not part of the code, as a list would be

    def pressed(point, rng):
        calls.append(point)
        if len(calls) == at:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.01)
        return measure(point, rng)

    return pressed, calls


@pytest.mark.parametrize(("times", "n_finished"), [(1, 7), (2, 6)])
def test_ctrl_c_once_finishes_the_point_twice_does_not(tmp_path, capsys, times, n_finished):
    pressed, calls = pressing(7, times)
    store = tmp_path / "a.sqlite"
    made = sweep(5, measure=pressed)
    with pytest.raises(SweepInterrupted, match=rf"{n_finished} of 20 points .* run it again"):
        made.run(store, progress=False)
    assert "press Ctrl-C again to stop at once" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    result = made.run(store, progress=False)
    assert len(calls) == 20 + (7 - n_finished)
    assert content(result) == content(sweep(5).run(progress=False))


def test_ctrl_c_lets_workers_finish(tmp_path, monkeypatch):
    monkeypatch.setattr(_execution, "GROUP_SECONDS", 0.05)
    started = []

    def slow(point, rng):
        started.append(point)
        time.sleep(0.01)
        return measure(point, rng)

    made, store = sweep(measure=slow), tmp_path / "a.sqlite"
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with ThreadPoolExecutor(2) as pool, pytest.raises(SweepInterrupted, match="are finished and"):
        made.run(store, executor=pool, progress=False)
    timer.join()
    with Store(store) as opened:
        assert 0 < len(list(opened.records())) == len(started) < 200


# workers that are lost -----------------------------------------------------------------------


class Unlucky(Executor):
    """Loses every third call, and dies of one point."""

    _max_workers = 2

    def __init__(self, deadly=None):
        self.calls, self.deadly = 0, deadly

    def submit(self, function, /, work, points, seconds):
        self.calls += 1
        answer: Future = Future()
        if any(point["rho"] == self.deadly and point["seed"] == 3 for point in points):
            answer.set_exception(WorkerDiedError("it ended 4 workers"))
        elif self.calls % 3 == 0:
            answer.set_exception(CancelledError())
        else:
            answer.set_result(function(work, points, seconds))
        return answer


def test_lost_groups_are_sent_again():
    assert content(sweep().run(executor=Unlucky(), progress=False)) == content(
        sweep().run(progress=False)
    )


def test_a_deadly_point_fails_alone():
    with pytest.raises(SweepFailedError, match=r"1 of 200 points .* failed") as caught:
        sweep().run(executor=Unlucky(deadly=1.0), progress=False)
    assert caught.value.failures == {'{"n":3,"rho":1,"seed":3}': "it ended 4 workers"}
    assert len(caught.value.partial) == 199


class Contagious(Unlucky):
    """One worker: of the calls under way, a deadly point takes all with it."""

    _max_workers = 1

    def __init__(self, deadly, seed):
        super().__init__(deadly)
        self.under_way, self.seed = [], seed

    def submit(self, function, /, work, points, seconds):
        answer: Future = Future()
        answer.set_running_or_notify_cancel()
        self.under_way.append((answer, function, work, points, seconds))
        if len(self.under_way) == 1:
            threading.Timer(0.01, self.run).start()
        return answer

    def run(self):
        taken, self.under_way = self.under_way, []
        dies = any(
            p["rho"] == self.deadly and p["seed"] == self.seed for call in taken for p in call[3]
        )
        for answer, function, *arguments in taken:
            if dies:
                answer.set_exception(WorkerDiedError("it ended 4 workers"))
            else:
                answer.set_result(function(*arguments))


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4])
def test_points_beside_a_deadly_one_are_measured(monkeypatch, seed):
    monkeypatch.setattr(_execution, "GROUP_SECONDS", 1e-9)  # one point in a group
    with pytest.raises(SweepFailedError, match=r"1 of 20 points .* failed") as caught:
        sweep(5).run(executor=Contagious(1.0, seed), progress=False)
    assert list(caught.value.failures) == [f'{{"n":3,"rho":1,"seed":{seed}}}']
