"""A store never serves a wrong value; files are whole, exact and the same for the same data."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gradprop import _files
from gradprop._files import (
    array_digest,
    canonical_json,
    data_digest,
    read_npz,
    write_atomically,
    write_csv,
    write_npz,
)
from gradprop._records import as_values, decode, encode, schema, schema_difference
from gradprop.store import Record, Store, StoreBusyError, StoreError, read_csv


def some_records(number=60, size=700):
    rng = random.Random(3)
    return [
        Record("main", f"s{i % 2}", f'{{"rho":{i}}}', "1.0", rng.randbytes(size))
        for i in range(number)
    ]


def payload(store, sweep, settings, key, code="1.0"):
    (found,) = store.find(sweep, settings, code, [key])
    return found.payload


def read_all(path, records):
    """Serve every record that the store at `path` still has, compare it with what was put."""
    truth = {(r.settings, r.key): r.payload for r in records}
    n_served = 0
    with Store(path) as store:
        for settings in ("s0", "s1"):
            for key in store.finished("main", settings, "1.0"):
                assert payload(store, "main", settings, key) == truth[settings, key]
                n_served += 1
    return n_served


@pytest.fixture
def filled(tmp_path):
    path, records = tmp_path / "a.sqlite", some_records()
    with Store(path) as store:
        assert store.put(records) == len(records)
    return path, records


def test_records_come_back(filled):
    path, records = filled
    assert read_all(path, records) == len(records)
    with Store(path) as store:
        assert store.finished("main", "s0", "2.0") == set()
        assert store.finished("other", "s0", "1.0") == set()
        store.put([Record("main", "s0", '{"rho":0}', "2.0", b"newer code")])
        assert payload(store, "main", "s0", '{"rho":0}', "2.0") == b"newer code"
        assert len(store.finished("main", "s0", "1.0")) == 29
        assert store.holds("main", "s0", "2.0")
        assert not store.holds("main", "s1", "2.0")


def test_some_records_are_looked_up_among_many():
    numbers = range(3000)
    records = [
        Record("main", "s", str(i), "12"[i % 2], bytes(i % 7), failed=i % 3 == 0) for i in numbers
    ]
    with Store() as store:
        store.put(records)
        keys = [str(i) for i in range(-5, 2500)]
        wanted = {str(i): i % 3 == 0 for i in range(0, 2500, 2)}
        assert store.states("main", "s", "1", keys) == wanted
        assert store.states("main", "t", "1", keys) == store.states("main", "s", "1", []) == {}
        assert set(store.find("main", "s", "1", list(wanted))) == set(records[:2500:2])
        with pytest.raises(StoreError, match="the record of 1 is lost"):
            list(store.find("main", "s", "1", ["0", "1", "2"]))


def test_failed_points_are_recorded_but_not_finished():
    with Store() as store:
        store.put([Record("main", "s", "k", "1", b"ValueError: no", failed=True)])
        assert store.finished("main", "s", "1") == set()
        assert store.states("main", "s", "1", ["k"]) == {"k": True}
        assert payload(store, "main", "s", "k", "1") == b"ValueError: no"
        store.put([Record("main", "s", "k", "1", b"fine")])
        assert store.states("main", "s", "1", ["k"]) == {"k": False}


def test_a_group_is_written_whole_or_not_at_all():
    def group():
        yield Record("main", "s", "k", "1", b"first")
        raise RuntimeError("in the middle")

    with Store() as store:
        with pytest.raises(RuntimeError):
            store.put(group())
        assert store.finished("main", "s", "1") == set()


def test_second_driver_gets_a_message(filled):
    path, _ = filled
    code = f"from gradprop.store import Store; Store({str(path)!r})"
    with Store(path) as store:
        with pytest.raises(StoreBusyError, match="in use by another run"):
            Store(path)
        for _ in range(2):  # also after the refusal above, which must not have dropped the lock
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
            assert "StoreBusyError" in done.stderr
            assert "in use by another run" in done.stderr
            store.put([Record("main", "s0", "new", "1.0", b"x")])
    Store(path).close()


@pytest.mark.parametrize("where", ["anywhere", "first pages"])
def test_bit_flips_never_serve_a_wrong_value(filled, caplog, where):
    path, records = filled
    whole = path.read_bytes()
    rng = random.Random(where)
    n_found = 0
    for _ in range(120):
        for file in path.parent.iterdir():
            file.unlink()
        position = rng.randrange(len(whole) if where == "anywhere" else 3 * 4096)
        damaged = bytearray(whole)
        damaged[position] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        caplog.clear()
        n_served = read_all(path, records)
        # A damaged page of the table's tree may cost all that hangs below it, never more.
        assert n_served == len(records) or caplog.records
        if where == "anywhere" and caplog.records:
            n_found += 1
            assert "set-aside-1" in caplog.text
            assert n_served >= len(records) - 30
    assert where != "anywhere" or n_found > 60


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (lambda whole: b"year,rho\n" * 2000, "first bytes"),
        (lambda whole: b"\0" * 9000, "first bytes"),
        (lambda whole: whole[:100], "malformed|not a database|header"),
        (lambda whole: whole[: len(whole) // 8192 * 4096], "malformed|structure"),
        (lambda whole: whole[:-700], "malformed|structure|checksums"),
    ],
)
def test_foreign_and_truncated_files_are_set_aside(filled, caplog, content, fault):
    path, records = filled
    broken = content(path.read_bytes())
    path.write_bytes(broken)
    n_served = read_all(path, records)
    aside = path.with_name("a.set-aside-1.sqlite")
    assert aside.read_bytes() == broken
    assert sorted(path.parent.iterdir()) == [aside, path]
    message = caplog.records[0].getMessage()
    assert pytest.approx(n_served) == int(message.split(" sound records")[0].split()[-1])
    assert any(part in message for part in fault.split("|"))
    with Store(path) as store:
        store.put(records)
    caplog.clear()
    assert read_all(path, records) == len(records)
    assert not caplog.records


def test_other_databases_and_empty_files(tmp_path, caplog):
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE record (sweep, settings, key, code, failed, payload, checksum)")
        other.execute("INSERT INTO record VALUES ('main', 's0', 'k', '1.0', 0, x'00', x'00')")
    other.close()
    assert read_all(path, []) == 0
    assert "not those of this version's stores" in caplog.text
    caplog.clear()
    path.write_bytes(b"")
    assert read_all(path, []) == 0
    assert not caplog.records


def test_what_cannot_be_opened_or_written(tmp_path):
    with pytest.raises(StoreError, match="writable"):
        Store(tmp_path / "nowhere" / "a.sqlite")
    with pytest.raises(StoreError, match="cannot read"):
        Store(tmp_path)
    with Store(tmp_path / "a.sqlite") as store:
        store.put(some_records(10))
        store._connection.execute("PRAGMA max_page_count = 8")
        with pytest.raises(StoreError, match="free some space"):
            store.put([Record("main", "s0", "big", "1.0", bytes(10**5))])
        assert len(store.finished("main", "s0", "1.0")) == 5
        with pytest.raises(StoreError, match="is lost"):
            payload(store, "main", "s0", "absent")
        store._connection.execute("UPDATE record SET payload = x'00' WHERE settings = 's0'")
        with pytest.raises(StoreError, match=r'the record of \{"rho":0\} is lost'):
            payload(store, "main", "s0", '{"rho":0}')


# payloads ------------------------------------------------------------------------------------


@given(
    hnp.arrays(
        dtype=st.one_of(
            hnp.floating_dtypes(endianness="<", sizes=(32, 64)),
            hnp.integer_dtypes(endianness="<"),
            hnp.complex_number_dtypes(endianness="<", sizes=(64, 128)),
            hnp.boolean_dtypes(),
            hnp.unicode_string_dtypes(endianness="<", min_len=1, max_len=5),
        ),
        shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    )
)
def test_payloads_keep_every_bit(array):
    values = as_values({"x": array, "y": 1.5, "flag": True, "text": ""})
    back = decode(encode(values))
    assert back.keys() == values.keys()
    for name, value in values.items():
        assert back[name].dtype == value.dtype
        assert back[name].shape == value.shape
        assert back[name].tobytes() == value.tobytes()


@pytest.mark.parametrize(
    ("measured", "error", "text"),
    [
        ([1, 2], TypeError, "mapping"),
        ({}, ValueError, "at least one field"),
        ({"a b": 1}, ValueError, "identifier"),
        ({"x": None}, TypeError, "`x` must be a number"),
        ({"x": np.array([1, "a"], dtype=object)}, TypeError, "dtype object"),
        ({"x": {"y": 1}}, TypeError, "dict"),
        ({"x": [[1], [1, 2]]}, ValueError, "regular"),
        ({"x": b"bytes"}, TypeError, "bytes"),
        ({"x": np.longdouble(1)}, TypeError, "longdouble|float128"),
        ({"x": np.datetime64("2020-01-01")}, TypeError, "datetime"),
    ],
)
def test_measured_values_are_checked(measured, error, text):
    with pytest.raises(error, match=text):
        as_values(measured)


def test_schema_names_the_field_that_differs():
    def of(**values):
        return schema(encode(as_values(values)))

    assert schema_difference(of(a=1.0, s="x"), of(a=2.0, s="longer")) == ""
    assert "`b`" in schema_difference(of(a=1.0), of(a=1.0, b=1.0))
    assert "`a` of other points is missing" in schema_difference(of(a=1.0, b=1.0), of(b=1.0))
    assert "dtype <i8" in schema_difference(of(a=1.0), of(a=1))
    assert "(3,)" in schema_difference(of(a=[1.0, 2.0]), of(a=[1.0, 2.0, 3.0]))


# canonical JSON and files --------------------------------------------------------------------


def test_canonical_json_is_one_text_for_equal_values():
    assert canonical_json({"b": 1.0, "a": np.float32(0.5)}) == '{"a":0.5,"b":1}'
    assert canonical_json([True, 1, "é", 2.0**60, -0.0]) == (
        '[true,1,"\\u00e9",1.152921504606847e+18,0]'
    )
    assert canonical_json({"x": np.arange(3)}) != canonical_json({"x": np.arange(3.0)})
    for value, error in ((np.nan, ValueError), (np.inf, ValueError), ({1}, TypeError)):
        with pytest.raises(error):
            canonical_json(value)


@given(st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False, allow_infinity=False)))
def test_canonical_json_keeps_every_number(numbers):
    import json

    assert json.loads(canonical_json(numbers)) == numbers


def test_npz_has_the_same_bytes_whenever_it_is_written(tmp_path, monkeypatch):
    arrays = {"b/x": np.arange(6.0).reshape(2, 3), "a": np.array("text"), "c": np.float32([1, 2])}
    first = write_npz(tmp_path / "1.npz", arrays).read_bytes()
    monkeypatch.setattr("time.time", lambda: 2e9)
    monkeypatch.setattr("time.localtime", lambda *_: (2033, 5, 18, 3, 33, 20, 2, 138, 0))
    again = write_npz(tmp_path / "2.npz", dict(reversed(arrays.items()))).read_bytes()
    assert first == again
    back = read_npz(tmp_path / "1.npz")
    assert data_digest(back) == data_digest(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)
    with pytest.raises(ValueError, match="Object arrays"):
        write_npz(tmp_path / "3.npz", {"x": np.array([{}])})
    (tmp_path / "1.npz").write_bytes(first[:100] + b"X" + first[101:])
    with pytest.raises(ValueError, match="damaged"):
        read_npz(tmp_path / "1.npz")


def test_array_digest_tells_dtype_and_shape_apart():
    zeros = np.zeros(4)
    digests = {
        array_digest(a)
        for a in (zeros, zeros.reshape(2, 2), zeros.astype("<i8"), zeros.astype("<f4"), -zeros)
    }
    assert len(digests) == 5
    assert array_digest(np.arange(6.0).reshape(2, 3).T) == array_digest(
        np.ascontiguousarray(np.arange(6.0).reshape(2, 3).T)
    )


def test_csv_gives_back_every_bit(tmp_path):
    rng = np.random.default_rng(0)
    doubles = rng.integers(0, 2**64, 20_000, dtype=np.uint64).view(np.float64)
    doubles = np.where(np.isfinite(doubles), doubles, 0.1)
    singles = rng.integers(0, 2**32, 20_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    columns = {
        "double": doubles,
        "single": np.where(np.isfinite(singles), singles, np.float32(0.1)),
        "count": np.arange(20_000),
        "flag": rng.random(20_000) < 0.5,
        "text": np.array(["plain", 'a "b", c'] * 10_000),
    }
    path = write_csv(tmp_path / "a.csv", columns)
    frame = read_csv(path)
    assert frame["double"].to_numpy().tobytes() == doubles.tobytes()
    assert frame["single"].to_numpy().astype(np.float32).tobytes() == columns["single"].tobytes()
    assert frame["count"].tolist() == columns["count"].tolist()
    assert frame["flag"].tolist() == columns["flag"].tolist()
    assert frame["text"].tolist() == columns["text"].tolist()


def test_csv_text_is_short_and_fixed(tmp_path):
    columns = {"x": np.array([0.1, np.nan, -np.inf]), "y": np.float32([0.1, 1e-45, 1])}
    assert write_csv(tmp_path / "a.csv", columns).read_bytes() == (
        b"x,y\n0.1,0.1\nnan,1e-45\n-inf,1.0\n"
    )
    back = read_csv(tmp_path / "a.csv")["x"].to_numpy()
    np.testing.assert_array_equal(back, columns["x"])
    with pytest.raises(ValueError, match="shorter"):
        write_csv(tmp_path / "b.csv", {"x": np.zeros(2), "y": np.zeros(1)})


def test_a_file_is_the_old_one_or_the_new_one(tmp_path, monkeypatch):
    path = write_atomically(tmp_path / "a.txt", b"old")

    def fail(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(_files.os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_only_one_place_reads_csv():
    package = Path(_files.__file__).parent
    readers = [p.name for p in package.rglob("*.py") if "pd.read_csv" in p.read_text("utf-8")]
    assert readers == ["_files.py"]
