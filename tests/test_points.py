"""Points made from columns are those of a plain list; no run or file holds more than it says."""

from __future__ import annotations

import io
import itertools
import os
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT
from hypothesis import given
from hypothesis import strategies as st

from gradprop._execution import dearest_first
from gradprop._files import array_digest, write_csv, write_npz
from gradprop._gather import Columns
from gradprop._grid import expand, seed_list
from gradprop._points import CHUNK, Points, point_key
from gradprop._records import as_values, decode, encode

NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.floats(-2, 2).map(lambda x: round(x, 1)),
    st.just(2**60),
    st.just(2.0**60),
)
TEXTS = st.text("ab", max_size=3)
COLUMN = st.one_of(*(st.lists(kind, min_size=1, max_size=4) for kind in (NUMBERS, TEXTS)))
PRODUCTS = st.dictionaries(st.sampled_from(["x", "y", "z"]), COLUMN, max_size=3)
SEEDS = st.one_of(
    st.integers(1, 4), st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)
)


def listed(grid, seeds):
    """The plain list of all points that `Points` never makes."""
    combinations = itertools.product(*grid.values())
    points = [dict(zip(grid, values, strict=True)) for values in combinations]
    seeds = range(seeds) if isinstance(seeds, int) else seeds
    return [{**point, "seed": seed} for point in points for seed in seeds]


def first_twice(points):
    seen = {}
    for i, point in enumerate(points):
        if (before := seen.setdefault(point_key(point), i)) != i:
            return f"{point_key(point)} comes twice (points {before} and {i})."
    return ""


def made(grid, seeds):
    return Points.of(expand(grid), seed_list(seeds))


def same(points, plain):
    """Values, their types, and the columns that NumPy makes of them."""
    assert len(points) == len(plain)
    assert list(points) == plain
    assert [points[i] for i in range(len(plain))] == plain
    types = [[type(value) for value in point.values()] for point in plain]
    assert [[type(value) for value in point.values()] for point in points] == types
    for name, column in points.columns().items():
        expected = np.array([point[name] for point in plain], None if plain else column.dtype)
        assert column.dtype == expected.dtype
        assert column.tolist() == expected.tolist()


@given(PRODUCTS, SEEDS, st.randoms(use_true_random=False), st.booleans())
def test_points_are_those_of_a_plain_list(grid, seeds, random, as_list):
    plain = listed(grid, 1)
    given_grid = [{k: v for k, v in p.items() if k != "seed"} for p in plain] if as_list else grid
    if said := first_twice([{k: v for k, v in p.items() if k != "seed"} for p in plain]):
        with pytest.raises(ValueError, match="points of `grid` must differ") as caught:
            made(given_grid, seeds)
        assert said in str(caught.value)
        return
    points, plain = made(given_grid, seeds), listed(grid, seeds)
    same(points, plain)
    chosen = random.sample(range(len(plain)), random.randint(0, len(plain)))
    some, some_plain = points.choose(chosen), [plain[i] for i in chosen]
    same(some, some_plain)
    same(some[1:], some_plain[1:])
    same(points[1:-1].choose([0] if len(plain) > 2 else []), plain[1:2] if len(plain) > 2 else [])
    wanted = {point_key(point) for point in some_plain}
    kept = [point for point in plain if point_key(point) in wanted]
    same(points.where(lambda keys: (key in wanted for key in keys)), kept)
    kept = [point for point in some_plain[1:] if point["seed"] % 2]
    odd = {point_key(point) for point in kept}
    same(some[1:].where(lambda keys: (key in odd for key in keys)), kept)


def test_many_points_are_cut_into_parts():
    points = made({"x": range(700), "kind": ["a", "b"]}, 3)
    plain = listed({"x": range(700), "kind": ["a", "b"]}, 3)
    assert [len(part) for part in points.parts()] == [CHUNK] * 8 + [200]
    found = itertools.chain.from_iterable(Points.keys(part) for part in points.parts())
    assert list(found) == list(map(point_key, plain))
    assert points.where(lambda keys: (True for _ in keys)) is points
    ordered = dearest_first(points, lambda point: 1.0 + point["x"] // 7)
    assert list(ordered) == sorted(plain, key=lambda point: -(point["x"] // 7))
    assert dearest_first(points, lambda point: 5.0) is points
    extreme = dearest_first(points, lambda point: 1e300 if point["x"] == 8 else 1e-300)
    assert [point["x"] for point in extreme[:7]] == [8] * 6 + [0]


def test_a_grid_of_ten_billion_points_takes_no_memory():
    points = made({"x": np.arange(10.0**5), "y": range(10**4)}, 10)
    assert len(points) == 10**10
    assert points[-1] == {"x": 99999.0, "y": 9999, "seed": 9}
    some = points.choose([2**32 + 5, 7])
    assert list(some) == [points[2**32 + 5], points[7]]


@given(
    st.lists(
        st.tuples(
            st.floats(), TEXTS, st.lists(TEXTS, min_size=2, max_size=2), st.integers(0, 2**62)
        ),
        min_size=1,
        max_size=8,
    ),
    st.randoms(use_true_random=False),
)
def test_stacking_in_parts_gives_what_stacking_all_gives(rows, random):
    measured = [
        {"a": a, "empty": np.zeros((2, 0)), "n": n, "text": text, "words": words, "z": [1j * a]}
        for a, text, words, n in rows
    ]
    payloads = [encode(as_values(point)) for point in measured]
    columns, order = Columns(len(rows)), list(range(len(rows)))
    random.shuffle(order)
    for start in range(0, len(rows), 3):
        here = order[start : start + 3]
        columns.put_payloads(here, [payloads[i] for i in here])
    for name, column in columns.arrays.items():
        expected = np.stack([decode(payload)[name] for payload in payloads])
        assert (column.dtype, column.shape) == (expected.dtype, expected.shape)
        assert column.tobytes() == expected.tobytes()
    nothing = Columns(2)
    nothing.put_payloads([1, 0], [encode(as_values({"e": np.zeros(0)}))] * 2)
    assert nothing.arrays["e"].shape == (2, 0)


# memory --------------------------------------------------------------------------------------


def peak_of(action):
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_files_are_written_without_a_copy_of_the_data(tmp_path):
    n = 10**5
    columns = {"x": np.random.default_rng(0).random(n), "k": np.arange(n)}
    # 2**13 lines at a time are 0.8 MB as numbers and text; all of them were 10 MB.
    assert peak_of(lambda: write_csv(tmp_path / "a.csv", columns)) < 2e6
    # A piece of 1 MiB and what it is compressed to; noise of 8 MB stays as long when compressed.
    noise = np.random.default_rng(1).random(10**6)
    assert peak_of(lambda: write_npz(tmp_path / "a.npz", {"noise": noise})) < 4e6
    assert peak_of(lambda: array_digest(noise)) < 1e5


@pytest.mark.parametrize("dtype", ["<f8", "<U3", "?", "<c8", "<U0"])
def test_npz_is_what_numpy_would_write(tmp_path, monkeypatch, dtype):
    monkeypatch.setattr("gradprop._files._PIECE", 40)
    plain = np.arange(60).reshape(3, 4, 5).astype(dtype)
    for array in (plain, plain.T, plain[:, ::2], plain[:0], plain[1, 1, 1]):
        write_npz(tmp_path / "a.npz", {"a": array})
        expected = io.BytesIO()
        np.lib.format.write_array(expected, np.asarray(array), (1, 0))
        with zipfile.ZipFile(tmp_path / "a.npz") as archive:
            assert archive.read("a.npy") == expected.getvalue()


DRIVER = """
import sys
from pathlib import Path
from gradprop.sweep import Sweep

def measure(point, rng):
    return {"x": point["rho"], "y": 2.0 * point["rho"]}

def cost(point):
    return 1.0 + point["rho"]

def sweep(n_rho, seeds):
    grid = {"kind": ["a", "b"], "rho": [i / 7 for i in range(n_rho)]}
    return Sweep("main", measure, grid, seeds=seeds, rng_keys=(), cost=cost)

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))

folder, answer = Path(sys.argv[1]), 0
for seeds in (5, 10, 10):
    sweep(200, seeds).run(folder / "first.sqlite", progress=False)
Path("/proc/self/clear_refs").write_text("5")
before = status("VmRSS")
for seeds in (5, 10, 10):
    result = sweep(1000, seeds).run(folder / "a.sqlite", progress=False)
    answer = sum(a.nbytes for a in (*result.points.values(), *result.values.values()))
    n_points = len(result)
    del result
print(n_points, status("VmHWM") - before - answer)
"""


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the peak is Linux's to tell"
)
def test_memory_of_a_driver_is_flat(tmp_path):
    """Half of the points, the other half, all found finished: ordered by cost, in a file.

    A list of the keys of 20 000 points is 2 MB, a set of the finished ones 2, a list of their
    records 6. Stated are 24 bytes a point, and the allocator's unused pages come to less than 1 MB.
    """
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    n_points, beside = map(int, done.stdout.split())
    assert n_points == 20_000
    assert beside < 24 * n_points + 1e6
