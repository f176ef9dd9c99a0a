"""Sweeps give the same bytes however they are run, keep what is finished, and say what is wrong."""

from __future__ import annotations

import collections
import functools
import hashlib
import importlib.util
import itertools
import json
import multiprocessing
import sys
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from gradprop import _execution
from gradprop._code import code_digest
from gradprop._execution import worker_pool
from gradprop._points import point_generator, point_key
from gradprop.store import Store
from gradprop.sweep import (
    CannotTravelError,
    Sweep,
    SweepFailedError,
    SweepInterrupted,
    WorkersLostError,
)

CALLS = collections.deque()
GRID = {"kind": ["a", "b"], "rho": [0.5, 1.0, 1.5], "n": [3]}


def measure(point, rng):
    CALLS.append(point_key(point))
    noise = rng.normal(size=point["n"])
    return {
        "total": noise.sum() * point["rho"],
        "noise": noise.astype(np.float32),
        "label": point["kind"] * (1 + point["seed"] % 2),
        "positive": bool(noise[0] > 0),
        "count": point["n"],
    }


def slow(point, rng):
    time.sleep(0.01)
    return {"x": rng.normal()}


def dies(point, rng):
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def sweep(grid=GRID, seeds=4, **changed):
    settings = {"measure": measure, "rng_keys": ["kind"], **changed}
    return Sweep("main", settings.pop("measure"), grid, seeds=seeds, **settings)


def content(result):
    """All bytes of a result."""
    arrays = {**result.points, **result.values}
    return {name: (a.dtype.str, a.shape, a.tobytes()) for name, a in arrays.items()}


@pytest.fixture(autouse=True)
def _no_calls():
    CALLS.clear()


# what is measured ----------------------------------------------------------------------------


def test_result_is_in_the_order_of_the_grid():
    result = sweep().run(progress=False)
    expected = list(itertools.product(["a", "b"], [0.5, 1.0, 1.5], [3], range(4)))
    columns = (result["kind"], result["rho"], result["n"], result["seed"])
    assert list(zip(*(c.tolist() for c in columns), strict=True)) == expected
    assert len(result) == 24
    assert result["noise"].shape == (24, 3)
    assert result["noise"].dtype == np.float32
    assert result["label"].tolist()[:2] == ["a", "aa"]
    frame = result.to_frame()
    assert list(frame.columns) == [
        *("kind", "rho", "n", "seed", "count", "label", "positive", "total")
    ]
    assert frame["total"].to_numpy().tobytes() == result["total"].tobytes()
    part = result.select(kind="b", rho=1.0)
    assert part["seed"].tolist() == [0, 1, 2, 3]
    assert part["total"].tolist() == frame.query("kind == 'b' and rho == 1")["total"].tolist()
    with pytest.raises(KeyError, match="it has kind, rho"):
        result["gain"]
    with pytest.raises(ValueError, match="read-only"):
        result["total"][0] = 0.0


def test_points_may_be_listed():
    points = [{"kind": "a", "rho": 0.5, "n": 2}, {"n": 2, "rho": 2, "kind": "b"}]
    result = sweep(points, 1).run(progress=False)
    assert result["rho"].tolist() == [0.5, 2.0]
    product = sweep({"kind": ["b"], "rho": [2.0], "n": [2]}, 1).run(progress=False)
    assert result["noise"][1].tobytes() == product["noise"][0].tobytes()


def test_random_numbers_depend_on_seed_and_rng_keys_alone():
    result = sweep().run(progress=False)
    text = json.dumps({"kind": "a"}, separators=(",", ":"))
    words = np.frombuffer(hashlib.sha256(text.encode()).digest(), "<u4").tolist()
    rng = np.random.default_rng(np.random.SeedSequence(2, spawn_key=tuple(words)))
    expected = rng.normal(size=3).astype(np.float32)
    for rho in (0.5, 1.0, 1.5):
        np.testing.assert_array_equal(
            result.select(kind="a", rho=rho, seed=2)["noise"][0], expected
        )
    distinct = {row.tobytes() for row in result["noise"]}
    assert len(distinct) == 2 * 4
    again = point_generator({"kind": "a", "seed": 2}, ["kind"]).normal(size=3)
    np.testing.assert_array_equal(again.astype(np.float32), expected)


def test_whole_floats_and_integers_are_one_value():
    as_floats = sweep({"kind": ["a"], "rho": [1.0], "n": [3]}).run(progress=False)
    as_integers = sweep({"kind": ["a"], "rho": [1], "n": np.array([3])}).run(progress=False)
    assert content(as_floats)["total"] == content(as_integers)["total"]
    assert point_key({"x": 1}) == point_key({"x": 1.0}) != point_key({"x": True})


def test_constants_reach_measure_and_count_as_settings(tmp_path):
    def scaled(point, rng):
        return {"y": point["W"] @ np.ones(2)}

    store = tmp_path / "a.sqlite"
    for W in (np.eye(2), 2 * np.eye(2), np.eye(2)):
        made = Sweep("m", scaled, {"x": [1]}, seeds=1, rng_keys=(), constants={"W": W})
        result = made.run(store, progress=False)
        np.testing.assert_array_equal(result["y"][0], W.sum(axis=1))
        assert made.settings()["constants"]["W"]["shape"] == [2, 2]
    with Store(store) as opened:
        assert opened._connection.execute("SELECT count(*) FROM record").fetchone() == (2,)


# nothing is computed twice -------------------------------------------------------------------


def test_only_what_is_new_is_computed(tmp_path):
    store = tmp_path / "a.sqlite"
    first = sweep(seeds=2).run(store, progress=False)
    assert len(CALLS) == 12
    CALLS.clear()
    assert content(sweep(seeds=2).run(store, progress=False)) == content(first)
    assert not CALLS
    more_seeds = sweep(seeds=3).run(store, progress=False)
    assert {json.loads(key)["seed"] for key in CALLS} == {2}
    assert len(CALLS) == 6
    CALLS.clear()
    sweep({**GRID, "rho": [0.7, 0.5, 1.0, 1.5]}, 3).run(store, progress=False)
    assert {json.loads(key)["rho"] for key in CALLS} == {0.7}
    CALLS.clear()
    assert content(sweep(seeds=3).run(progress=False)) == content(more_seeds)


def test_other_random_numbers_or_code_are_not_served(tmp_path, monkeypatch):
    store = tmp_path / "a.sqlite"
    sweep().run(store, progress=False)
    CALLS.clear()
    sweep(rng_keys=["kind", "rho"]).run(store, progress=False)
    assert len(CALLS) == 24
    CALLS.clear()
    monkeypatch.setattr("gradprop._run.library_version", lambda: "9.9.9")
    sweep().run(store, progress=False)
    assert len(CALLS) == 24


def test_interrupt_keeps_what_is_finished(tmp_path):
    store = tmp_path / "a.sqlite"
    limit = SimpleNamespace(calls=7)

    def interrupted(point, rng):
        if len(CALLS) == limit.calls:
            raise KeyboardInterrupt
        return measure(point, rng)

    made = sweep(measure=interrupted)
    with pytest.raises(
        SweepInterrupted, match=r"7 of 24 points .* kept in .*a.sqlite; run it again"
    ):
        made.run(store, progress=False)
    limit.calls = 100
    result = made.run(store, progress=False)
    assert len(CALLS) == len(set(CALLS)) == 24
    assert content(result) == content(sweep().run(progress=False))
    limit.calls = len(CALLS)
    with pytest.raises(SweepInterrupted, match="nothing is kept"):
        made.run(progress=False)


# however it is run ---------------------------------------------------------------------------


class Backwards(Executor):
    """Runs nothing until everything is submitted, then the last first."""

    def __init__(self):
        self.submitted = []

    def submit(self, function, /, *arguments):
        future = Future()
        self.submitted.append((future, function, arguments))
        if len(self.submitted) == 1:
            threading.Timer(0.05, self.run).start()
        return future

    def run(self):
        taken, self.submitted = self.submitted, []
        for future, function, arguments in reversed(taken):
            if future.set_running_or_notify_cancel():
                future.set_result(function(*arguments))


@pytest.mark.parametrize("group_seconds", [1e-9, 1.0])
def test_executors_and_groups_give_the_same_bytes(monkeypatch, group_seconds):
    expected = content(sweep().run(progress=False))
    monkeypatch.setattr(_execution, "GROUP_SECONDS", group_seconds)
    assert content(sweep().run(executor=Backwards(), progress=False)) == expected
    with ThreadPoolExecutor(3) as threads:
        assert content(sweep().run(executor=threads, progress=False)) == expected
    assert content(sweep().run(executor=1, progress=False)) == expected


def test_a_group_that_takes_too_long_is_cut(monkeypatch):
    def uneven(point, rng):
        time.sleep(0.0 if point["x"] < 60 else 0.02)
        return {"y": point["x"]}

    monkeypatch.setattr(_execution, "GROUP_SECONDS", 0.04)
    made = Sweep("m", uneven, {"x": range(75)}, seeds=1, rng_keys=())
    sizes = []

    def accept(group):
        sizes.append(len(group))

    work = _execution.Work(uneven, {}, ())
    with ThreadPoolExecutor(1) as thread:
        _execution.run_in_executor(work, made.points, accept, thread)
        assert made.run(executor=thread, progress=False)["y"].tolist() == list(range(75))
    assert sum(sizes) == 75
    assert max(sizes) > 4 >= sizes[-1]


def test_worker_processes_give_the_same_bytes(monkeypatch, tmp_path):
    made = sweep({"rho": [0.5, 1.0]}, 40, measure=slow, rng_keys=[])
    serial = content(made.run(progress=False))
    monkeypatch.setattr(_execution, "_WORTH_A_POOL", 0.0)
    pooled = made.run(tmp_path / "a.sqlite", executor=2, progress=False)
    assert content(pooled) == serial
    pool = worker_pool(2)
    # A pool that lost a worker: said, and the finished points are kept.
    with pytest.raises(WorkersLostError, match="fewer workers"):
        sweep(measure=dies).run(tmp_path / "a.sqlite", executor=pool, progress=False)
    assert content(made.run(tmp_path / "a.sqlite", progress=False)) == serial
    # Short work stays in this process.
    monkeypatch.setattr(_execution, "_WORTH_A_POOL", 3.0)
    monkeypatch.setattr("gradprop._run.worker_pool", lambda n: pytest.fail("started workers"))
    sweep().run(executor=2, progress=False)


def test_workers_have_one_thread_each():
    import numba
    from threadpoolctl import threadpool_info

    def threads(point, rng):
        blas = [i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"]
        return {"blas": max(blas), "numba": numba.get_num_threads()}

    with ThreadPoolExecutor(2) as pool:
        result = Sweep("t", threads, {"x": [1, 2, 3]}, seeds=1, rng_keys=()).run(
            executor=pool, progress=False
        )
    assert set(result["blas"]) == set(result["numba"]) == {1}


def test_overhead_per_point():
    def nothing(point, rng):
        return {"x": rng.random()}

    made = Sweep("m", nothing, {"x1": [1, 2], "x2": [1.5, 2.5]}, seeds=500, rng_keys=["x1"])
    start = time.perf_counter()
    made.run(progress=False)
    assert (time.perf_counter() - start) / 2000 < 2e-3


# what goes wrong -----------------------------------------------------------------------------


def test_failing_points_do_not_stop_the_others(tmp_path):
    luck = SimpleNamespace(bad=True)

    def fails(point, rng):
        if point["rho"] == 1.0 and point["seed"] == 1 and luck.bad:
            raise ArithmeticError("no luck")
        return measure(point, rng)

    made, store = sweep(measure=fails), tmp_path / "a.sqlite"
    with pytest.raises(SweepFailedError, match=r"2 of 24 points of main failed") as caught:
        made.run(store, progress=False)
    text = str(caught.value)
    assert '{"kind":"a","n":3,"rho":1,"seed":1}: ArithmeticError: no luck (fails, line' in text
    assert len(caught.value.failures) == 2
    assert len(caught.value.partial) == 22
    with Store(store) as opened:
        states = opened._connection.execute("SELECT failed, count(*) FROM record GROUP BY failed")
        assert dict(states.fetchall()) == {0: 22, 1: 2}
    luck.bad = False
    with pytest.raises(SweepFailedError, match="tried again with --retry-failed") as caught:
        made.run(store, progress=False)
    assert len(caught.value.failures) == 2
    assert len(CALLS) == 22
    again = made.run(store, progress=False, retry_failed=True)
    assert content(again) == content(sweep().run(progress=False))
    assert len(CALLS) == 22 + 2 + 24

    def fails_always(point, rng):
        raise RuntimeError("never")

    with pytest.raises(SweepFailedError, match="and 19 more") as caught:
        sweep(measure=fails_always).run(progress=False)
    assert caught.value.partial is None


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (lambda s: {"x": 1.0} if s else {"x": 1.0, "y": 2}, "`y` of other points is missing"),
        (lambda s: {"x": 1.0 if s else 2}, "`x` has dtype <f8"),
        (lambda s: {"x": np.zeros(2 + s)}, r"shape \(3,\) here"),
        (lambda s: {"x": np.array([{}]) if s else np.zeros(1)}, "dtype object"),
        (lambda s: {"rho": 1.0}, "already a field of the grid"),
        (lambda s: 1.0, "must return a mapping"),
    ],
)
def test_measured_fields_may_not_change(returned, text):
    def changing(point, rng):
        return returned(point["seed"])

    with pytest.raises(SweepFailedError, match=text):
        sweep({"rho": [1.0]}, 2, measure=changing, rng_keys=[]).run(progress=False)


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"grid": {}}, ValueError, None),
        ({"grid": []}, ValueError, "at least one point; got none"),
        ({"grid": {"rho": []}}, ValueError, r"`grid\['rho'\]` must hold at least one value"),
        ({"grid": {"rho": 0.5}}, TypeError, "must be a list of values; got 0.5"),
        ({"grid": {"rho": "abc"}}, TypeError, "must be a list of values"),
        ({"grid": {"rho": {0.5, 1.0}}}, TypeError, "must be a list of values"),
        ({"grid": {"rho": [0.5, float("nan")]}}, ValueError, "must be finite; got nan"),
        ({"grid": {"rho": [np.inf]}}, ValueError, "must be finite; got inf"),
        ({"grid": {"rho": [[0.5]]}}, TypeError, r"numbers, strings or bools; got \[0.5\]"),
        ({"grid": {"rho": [None]}}, TypeError, "numbers, strings or bools; got None"),
        ({"grid": {"rho": [2**70]}}, ValueError, "64 bits"),
        ({"grid": {"rho": [0.5, 0.5]}}, ValueError, 'must differ; {"rho":0.5} comes twice'),
        ({"grid": {"rho": [1, 1.0]}}, ValueError, "comes twice"),
        ({"grid": {"rho": [1, "1"]}}, TypeError, "one kind; got 1 and '1'"),
        ({"grid": {"rho": [1, True]}}, TypeError, "one kind"),
        ({"grid": {"seed": [1]}}, ValueError, "other than 'seed'"),
        ({"grid": {"a b": [1]}}, ValueError, "identifiers"),
        ({"grid": [{"rho": 1}, {"gain": 1}]}, ValueError, "point 1 has"),
        ({"grid": 3}, TypeError, "`grid` must map"),
        ({"seeds": 0}, ValueError, "`seeds` must be at least 1"),
        ({"seeds": 2.0}, TypeError, "`seeds` must be an integer"),
        ({"seeds": []}, ValueError, "`seeds` must hold"),
        ({"seeds": [3, 4, 3]}, ValueError, "3 comes twice"),
        ({"seeds": [-1]}, ValueError, "at least 0"),
        ({"rng_keys": ["gain"]}, ValueError, "got 'gain'"),
        ({"rng_keys": "rho"}, TypeError, "`rng_keys` must be a list"),
        ({"rng_keys": ["seed"]}, ValueError, "the seed always counts"),
        ({"name": "a/b"}, ValueError, "`name` must be an identifier"),
        ({"measure": 3}, TypeError, "`measure` must be a function"),
        ({"constants": {"rho": 1}}, ValueError, "`constants` must have names"),
        ({"constants": {"f": print}}, TypeError, "cannot be recorded"),
        ({"constants": {"x": np.nan}}, ValueError, "cannot be recorded"),
    ],
)
def test_bad_input_is_named_before_any_work(changed, error, text):
    given = {"name": "main", "measure": measure, "grid": {"rho": [0.5]}, "seeds": 1, **changed}
    given.setdefault("rng_keys", [])
    name, function, grid = given.pop("name"), given.pop("measure"), given.pop("grid")
    if text is None:
        # No field at all is one point, told apart by its seeds.
        assert len(Sweep(name, lambda p, r: {"x": 1}, grid, **given).run(progress=False)) == 1
        return
    with pytest.raises(error, match=text):
        Sweep(name, function, grid, **given)


def test_what_cannot_travel_is_said_before_starting(monkeypatch):
    spawn = ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))
    with spawn, pytest.raises(CannotTravelError, match="define it with def at the top"):
        sweep(measure=lambda point, rng: {"x": 1}).run(executor=spawn, progress=False)
    fork = ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork"))
    with fork, pytest.raises(ValueError, match="must not fork"):
        sweep().run(executor=fork, progress=False)
    lock = threading.Lock()
    with pytest.raises(CannotTravelError, match="lock"):
        sweep(measure=lambda point, rng: {"x": lock.locked()}).run(executor=2, progress=False)
    cached = functools.lru_cache(lambda: 1)
    cached.__module__, cached.__qualname__ = "__main__", "cached"
    monkeypatch.setattr(sys.modules["__main__"], "cached", cached, raising=False)
    with pytest.raises(CannotTravelError, match="uses cached of the script"):
        sweep(measure=lambda point, rng: {"x": cached()}).run(executor=2, progress=False)
    for executor, error in ((0, ValueError), (2.0, TypeError), ("local", TypeError)):
        with pytest.raises(error, match="executor"):
            sweep().run(executor=executor)


# progress and code ---------------------------------------------------------------------------


def test_progress_is_plain_lines_off_a_terminal(capsys, tmp_path):
    sweep().run(tmp_path / "a.sqlite")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "main: 24 points"
    assert lines[-1].startswith("main: 24/24 points, ")
    sweep().run(tmp_path / "a.sqlite")
    assert capsys.readouterr().err == "main: 24 points, 24 finished before\n"
    sweep().run(progress=False)
    assert capsys.readouterr().err == ""


def test_progress_is_a_bar_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    sweep().run()
    assert "24/24" in capsys.readouterr().err


SOURCE = '''
import collections
import functools
import numpy as np
SCALE = 2.0
TABLE = np.arange(3)
def helper(x):
    """Text."""
    return SCALE * x
@functools.cache
def cached():
    return TABLE
def unrelated():
    return 1
def measure(point, rng):
    """Text."""
    values = [helper(v) for v in cached()]
    return {"x": sum(values)}  # comment
'''


def test_code_digest_follows_meaning_not_layout(tmp_path):
    numbers = itertools.count()

    def of(source):
        path = tmp_path / f"study{next(numbers)}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return code_digest(module.measure)

    base = of(SOURCE)
    for old, new in (("# comment", ""), ('"""Text."""', '"""Other."""'), ("return 1", "return 3")):
        assert of(SOURCE.replace(old, new)) == base
    for old, new in (
        ("SCALE = 2.0", "SCALE = 2.5"),
        ("SCALE * x", "SCALE + x"),
        ("arange(3)", "arange(4)"),
        ("sum(values)", "max(values)"),
        ("return TABLE", "return TABLE + 1"),
        ("= 2.0", "= float('inf')"),
    ):
        assert of(SOURCE.replace(old, new)) != base
    one, two = functools.partial(measure, a=1), functools.partial(measure, a=2)
    assert len({code_digest(measure), code_digest(one), code_digest(two)}) == 3
