"""Full disks, lost permissions, cut and flipped files: named; nothing wrong served or lost."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from helpers import ROOT

from gradprop import _execution
from gradprop._storefile import sound_records
from gradprop.store import Record, Store, StoreError
from gradprop.sweep import Sweep

NOBODY = 65534
COMMIT_EACH = """
import os, sys
from gradprop.store import Record, Store
if sys.argv[2] == "as user" and os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
with Store(sys.argv[1]) as store:
    for i in range(400):
        store.put([Record("main", "s", str(i), "1", bytes(900))])
        print(i, flush=True)
"""


def measure(point, rng):
    return {"x": rng.normal(size=100)}


def some_records(number=60, size=700):
    rng = random.Random(3)
    return [
        Record("main", "s", f'{{"rho":{i}}}', "1.0", rng.randbytes(size)) for i in range(number)
    ]


def commit_each(path, who="as user", before=None):
    """Run COMMIT_EACH in a process of its own; a superuser becomes an ordinary one in it."""
    return subprocess.run(
        [sys.executable, "-c", COMMIT_EACH, str(path), who],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=before,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def folder():
    """A folder that belongs to an ordinary user, below one that everybody may enter."""
    made = Path(tempfile.mkdtemp())
    if os.getuid() == 0:
        os.chown(made, NOBODY, NOBODY)
    yield made
    made.chmod(0o700)
    shutil.rmtree(made)


def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


# full disks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [30_000, 33_333, 200_000])
def test_a_full_disk_loses_no_finished_record(tmp_path, size):
    path = tmp_path / "a.sqlite"
    done = commit_each(path, "as ever", before=lambda: limit(size))
    assert done.returncode == 1
    assert "StoreError: cannot write to the store" in done.stderr
    assert "free some space" in done.stderr
    assert "Everything finished before is kept" in done.stderr
    n_committed = len(done.stdout.split())
    assert 3 < n_committed < 400
    with Store(path) as store:
        kept = {int(key) for key in store.finished("main", "s", "1")}
    assert kept >= set(range(n_committed))
    assert list(tmp_path.iterdir()) == [path]


def test_a_sweep_on_a_full_disk_goes_on_when_there_is_space(tmp_path, monkeypatch):
    monkeypatch.setattr(_execution, "GROUP_SECONDS", 0.001)
    made = Sweep("main", measure, {"rho": [0.5, 1.0]}, seeds=200, rng_keys=["rho"])
    expected = made.run(progress=False)
    path, before = tmp_path / "a.sqlite", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(StoreError, match="run the same command again"):
            made.run(path, progress=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with Store(path) as store:
        assert 20 < len(list(store.records())) < 200
    assert made.run(path, progress=False)["x"].tobytes() == expected["x"].tobytes()


def test_a_study_that_cannot_write_its_results_keeps_its_points(tmp_path, monkeypatch, capsys):
    from demo_study import STUDY

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("gradprop._files.os.fsync", full)
        assert STUDY.main(["--out", str(tmp_path), "--jobs", "1"]) == 1
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert "Everything finished is kept" in said
    monkeypatch.setenv("DEMO_LOG", str(tmp_path / "log"))
    assert STUDY.main(["--out", str(tmp_path), "--jobs", "1"]) == 0
    assert not (tmp_path / "log").exists()


# lost permissions ----------------------------------------------------------------------------


def test_a_folder_without_permission(folder):
    folder.chmod(0o555)
    done = commit_each(folder / "a.sqlite")
    assert done.returncode == 1
    assert "cannot use the store" in done.stderr
    assert "is its folder writable" in done.stderr
    assert list(folder.iterdir()) == []


def test_a_file_that_lost_its_permission(folder):
    path = folder / "a.sqlite"
    assert commit_each(path).returncode == 0
    whole = path.read_bytes()
    for mode, text in ((0o444, "cannot use the store"), (0o000, "cannot read the store")):
        path.chmod(mode)
        done = commit_each(path)
        assert done.returncode == 1
        assert text in done.stderr
        path.chmod(0o600)
        assert path.read_bytes() == whole
        assert list(folder.iterdir()) == [path]


def test_permission_lost_in_the_middle(tmp_path):
    path = tmp_path / "a.sqlite"
    records = some_records()
    with Store(path) as store:
        store.put(records[:20])
        store._connection.execute("PRAGMA query_only = ON")
        with pytest.raises(StoreError, match="mend its permissions and run the same command"):
            store.put(records[20:])
    with Store(path) as store:
        assert list(store.records()) == records[:20]


# damage --------------------------------------------------------------------------------------


def damaged_bit(rng, whole):
    changed = bytearray(whole)
    changed[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(rng, whole):
    return whole[: rng.randrange(1, len(whole))]


def fault_of(path, truth):
    """What reading says of a file; if it says nothing, all must be there and right."""
    try:
        with Store(path, read_only=True) as store:
            assert set(store.records()) == truth
    except StoreError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("damage", "number"), [(damaged_bit, 50), (cut, 15)])
def test_damage_is_named_or_without_effect(tmp_path, caplog, damage, number):
    records = some_records()
    good = tmp_path / "good.sqlite"
    with Store(good) as store:
        store.put(records)
    whole, rng = good.read_bytes(), random.Random(damage.__name__)
    truth = set(records)
    for i in range(number):
        folder = tmp_path / str(i)
        folder.mkdir()
        path = folder / "a.sqlite"
        path.write_bytes(damage(rng, whole))
        with_faults = path.read_bytes()
        fault = fault_of(path, truth)
        named = bool(fault)
        assert not named or str(path) in fault
        assert path.read_bytes() == with_faults
        if named:
            assert set(sound_records(path)) <= truth
        caplog.clear()
        with Store(path) as store:
            served = set(store.records())
        assert served <= truth
        assert bool(caplog.records) == named
        assert named or served == truth
        if named:
            assert (folder / "a.set-aside-1.sqlite").read_bytes() == with_faults
