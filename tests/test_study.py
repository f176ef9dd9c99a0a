"""A study from its command line: files, flags, refusals, kills and resumption."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import demo_study
import numpy as np
import pytest
from demo_study import STUDY
from helpers import ROOT

from gradprop import figures
from gradprop._manifest import differences, git_state
from gradprop.environment import single_threaded_blas
from gradprop.store import Store, read_csv

SCRIPT = Path(demo_study.__file__)
DELIVERED = ("demo.pdf", "demo.png", "data/demo.npz", "data/demo.csv", "data/demo_people.csv")


def run(out, *flags):
    return STUDY.main(["--out", str(out), "--jobs", "1", *flags])


def start(out, *flags, **environment):
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), "--out", str(out), *flags],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def succeed(process):
    """Wait for the end, close the pipes, and see that all went well."""
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said


def delivered(out):
    return {name: (out / name).read_bytes() for name in DELIVERED}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished full run, shared by tests that only read it."""
    out = tmp_path_factory.mktemp("done")
    assert run(out) == 0
    return out


def copied(done, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(done, out)
    return out


# what is written -----------------------------------------------------------------------------


def test_all_files_are_written_and_named(tmp_path, capsys):
    assert run(tmp_path) == 0
    said = capsys.readouterr()
    for name in (*DELIVERED, "data/demo.json", "data/demo.sqlite"):
        assert (tmp_path / name).stat().st_size > 0
        assert str(tmp_path / name) in said.out or name.endswith("sqlite")
    assert said.out.startswith("what  value\nmean  2.")
    assert "lost  nan" in said.out
    assert "main: 24/24 points" in said.err
    left = {p.name for p in tmp_path.rglob("*") if p.is_file()}
    assert left == {Path(n).name for n in (*DELIVERED, "demo.json", "demo.sqlite")}


def test_quick_leaves_the_full_figures_alone(done, tmp_path):
    out = copied(done, tmp_path)
    before = delivered(out)
    assert run(out, "--quick") == 0
    assert delivered(out) == before
    assert len(read_csv(out / "quick" / "data" / "demo.csv")) == 12


def test_npz_and_csv_hold_the_data_and_nothing_else(done):
    with np.load(done / "data" / "demo.npz", allow_pickle=False) as stored:
        assert set(stored.files) == {
            *("settings", "main/kind", "main/x", "main/seed", "main/y", "main/curve"),
            *("main/verdict", "main/lost", "people/chunk", "people/seed", "people/mean"),
        }
        assert stored["main/curve"].shape == (24, 5)
        assert np.isneginf(stored["main/lost"]).all()
        settings = json.loads(str(stored["settings"]))
        y = stored["main/y"]
    assert settings["sweeps"]["main"]["grid"]["x"] == [0.5, 1, 1.5, 2]
    table = read_csv(done / "data" / "demo.csv")
    assert list(table.columns) == ["kind", "x", "seed", "lost", "verdict", "y"]
    assert table["y"].to_numpy().tobytes() == y.tobytes()
    raw = (done / "data" / "demo.npz").read_bytes()
    for word in (str(done), os.uname().nodename, time.strftime("%Y-%m-%d"), "jobs", "thread"):
        assert word.encode() not in raw
        assert word not in (done / "data" / "demo.csv").read_text()


def test_manifest_says_where_the_data_come_from(done):
    said = json.loads((done / "data" / "demo.json").read_text())
    assert said["claim"] == demo_study.__doc__
    assert said["settings"]["sweeps"]["people"]["rng_keys"] == ["chunk"]
    assert said["settings"]["sweeps"]["main"]["seeds"] == [0, 1, 2]
    assert re.fullmatch("[0-9a-f]{64}", said["settings_sha256"])
    assert re.fullmatch("[0-9a-f]{64}", said["data_sha256"])
    assert said["environment"]["packages"]["numpy"] == np.__version__
    assert said["environment"]["blas"][0]["core"]
    assert set(said["git"]) == {"revision", "dirty"}
    assert said["headline"][0] == ["what", "value"]
    assert said["jobs"] == 1
    assert str(done) not in json.dumps(said)
    assert said["data_sha256"][:16].encode() in (done / "demo.pdf").read_bytes()


def test_git_state(tmp_path):
    if shutil.which("git") is None:
        pytest.skip("no git")
    assert git_state(tmp_path, tmp_path / "figures") == {"revision": None, "dirty": None}

    def git(*arguments):
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", "-C", tmp_path, *identity, *arguments], check=True)

    (tmp_path / "figures").mkdir()
    for name in ("figures/a.json", "code.py"):
        (tmp_path / name).write_text("1")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "x")
    (tmp_path / "figures" / "a.json").write_text("2")
    state = git_state(tmp_path, tmp_path / "figures")
    assert re.fullmatch("[0-9a-f]{40}", state["revision"])
    assert state["dirty"] is False
    (tmp_path / "code.py").write_text("2")
    assert git_state(tmp_path, tmp_path / "figures")["dirty"] is True


def test_figures_are_exact_and_portable(done, tmp_path):
    out = copied(done, tmp_path)
    assert run(out, "--redraw", "--width", "aps-1") == 0
    pdf = (out / "demo.pdf").read_bytes()
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+) ?\]", pdf)
    assert float(box[1]) == pytest.approx(3.386 * 72, abs=1e-6)
    assert float(box[2]) == pytest.approx(2.0 * 72, abs=1e-6)
    assert b"/Type3" not in pdf
    assert b"/CIDFontType2" in pdf
    assert b"CreationDate" not in pdf


def test_figure_widths_and_style():
    import matplotlib as mpl

    assert figures.figure_width("neurips") == 5.5
    assert figures.figure_width("aps-2") == 7.008
    with pytest.raises(ValueError, match="`width` must be one of 'neurips'"):
        figures.figure_width("vogue")
    with mpl.rc_context({"savefig.bbox": "tight", "text.usetex": True}):
        with figures.style():
            assert mpl.rcParams["savefig.bbox"] is None
            assert mpl.rcParams["text.usetex"] is False
            assert mpl.rcParams["pdf.fonttype"] == 42
        assert mpl.rcParams["text.usetex"] is True


# the same bytes ------------------------------------------------------------------------------


def test_another_process_gives_the_same_bytes(done, tmp_path):
    succeed(start(tmp_path, "--jobs", "1", PYTHONHASHSEED="7", MPLCONFIGDIR=str(tmp_path / "mpl")))
    assert delivered(tmp_path) == delivered(done)


@pytest.fixture(scope="module")
def paused(tmp_path_factory):
    """What a run delivers that pauses at each of 40 points and is not killed."""
    out = tmp_path_factory.mktemp("paused")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEMO_PAUSE", "0.02")
        assert run(out, "--seeds", "5") == 0
    return delivered(out)


def finished_points(out):
    with Store(out / "data" / "demo.sqlite") as store:
        count = "SELECT count(*) FROM record WHERE sweep = 'main'"
        return store._connection.execute(count).fetchone()[0]


def wait_for_work(process, log, n_points=1):
    """Wait until the process or its workers have begun so many more points."""
    n_before = len(log.read_text().splitlines()) if log.exists() else 0
    while process.poll() is None:
        if log.exists() and len(log.read_text().splitlines()) >= n_before + n_points:
            break
        time.sleep(0.005)


@pytest.mark.parametrize(("jobs", "n_kills"), [("1", 3), ("2", 2)])
def test_killed_and_resumed_runs_give_the_same_bytes(tmp_path, paused, jobs, n_kills):
    rng = random.Random(f"kill {jobs}")
    out, log = tmp_path / "out", tmp_path / "log"
    environment = {"DEMO_LOG": str(log), "DEMO_PAUSE": "0.02"}
    n_finished = []
    for _ in range(n_kills):
        process = start(out, "--jobs", jobs, "--seeds", "5", **environment)
        wait_for_work(process, log, rng.randint(3, 9))
        time.sleep(rng.uniform(0.0, 0.03))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        n_finished.append(finished_points(out))
    succeed(start(out, "--jobs", jobs, "--seeds", "5", **environment))
    assert n_finished == sorted(n_finished)
    assert 0 < max(n_finished) < 40
    computed = [line.split() for line in log.read_text().splitlines()]
    assert len({tuple(point) for _, *point in computed}) == 40
    # A group of 0.05 s holds at most 3 points of 0.02 s; two groups may wait at each of 2 workers.
    in_hand = 3 if jobs == "1" else 2 * 2 * 3
    assert len(computed) <= 40 + n_kills * in_hand
    assert len({pid for pid, *_ in computed}) > n_kills + (2 if jobs == "2" else 0)
    assert delivered(out) == paused


@pytest.mark.parametrize(("jobs", "seconds"), [("1", 0.2), ("2", 1.5)])
def test_interrupt_says_how_to_go_on(tmp_path, jobs, seconds):
    log = tmp_path / "log"
    process = start(tmp_path, "--jobs", jobs, DEMO_LOG=str(log), DEMO_PAUSE="0.15")
    wait_for_work(process, log)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to workers too
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    told = re.search(r"interrupted: (\d+) of 24 points of main are finished and kept", said)
    assert "Traceback" not in said
    assert 0 < finished_points(tmp_path) == int(told[1]) < 24


def test_seeds(done, tmp_path, monkeypatch):
    out = copied(done, tmp_path)
    log = tmp_path / "log"
    monkeypatch.setenv("DEMO_LOG", str(log))
    assert run(out, "--seeds", "4") == 0
    assert {line.split()[-1] for line in log.read_text().splitlines()} == {"3"}
    more, before = read_csv(out / "data" / "demo.csv"), read_csv(done / "data" / "demo.csv")
    assert more[more["seed"] < 3].reset_index(drop=True).equals(before)
    log.unlink()
    assert run(out, "--seed", "3", "--seeds", "1") == 0
    assert not log.exists()
    assert set(read_csv(out / "data" / "demo.csv")["seed"]) == {3}
    assert run(out) == 0
    assert delivered(out) == delivered(done)


# redrawing -----------------------------------------------------------------------------------


def test_redraw_computes_nothing(done, tmp_path, monkeypatch):
    out = copied(done, tmp_path)
    (out / "data" / "demo.sqlite").unlink()
    (out / "demo.pdf").unlink()
    manifest = (out / "data" / "demo.json").read_bytes()
    monkeypatch.setenv("DEMO_LOG", str(tmp_path / "log"))
    assert run(out, "--redraw") == 0
    assert delivered(out) == delivered(done)
    assert (out / "data" / "demo.json").read_bytes() == manifest
    assert not (out / "data" / "demo.sqlite").exists()
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(
    ("flags", "key"),
    [
        (["--seeds", "4"], r"sweeps.main.seeds: the data have \[0, 1, 2\], the study has \[0, 1"),
        (["--scale", "2.5"], "sweeps.main.constants.scale: the data have 1, the study has 2.5"),
        (["--seed", "1"], r"sweeps.people.seeds: the data have \[0\], the study has \[1\]"),
    ],
)
def test_redraw_refuses_other_settings_and_names_them(done, tmp_path, capsys, flags, key):
    out = copied(done, tmp_path)
    assert run(out, "--redraw", *flags) == 2
    said = capsys.readouterr().err
    assert "was computed with other settings" in said
    assert re.search(key, said)
    assert delivered(out) == delivered(done)


def test_redraw_of_nothing_and_of_damaged_data(done, tmp_path, capsys):
    assert run(tmp_path / "empty", "--redraw") == 2
    assert "there is no" in capsys.readouterr().err
    out = copied(done, tmp_path)
    npz = out / "data" / "demo.npz"
    damaged = bytearray(npz.read_bytes())
    damaged[len(damaged) // 2] ^= 16
    npz.write_bytes(damaged)
    assert run(out, "--redraw") == 2
    assert "damaged" in capsys.readouterr().err
    np.savez(npz, x=np.zeros(3))
    assert run(out, "--redraw") == 2
    assert "not written by a study" in capsys.readouterr().err


def test_redraw_notes_changed_code(done, tmp_path, capsys, monkeypatch):
    out = copied(done, tmp_path)
    monkeypatch.setattr(demo_study, "OFFSET", 2.0)
    assert run(out, "--redraw") == 0
    assert "computed by an earlier version of the code" in capsys.readouterr().err


def test_differences_are_short():
    stored = {"a": list(range(1000)), "b": {"c": 1}}
    wanted = {"a": list(range(999)), "b": {"d": 1}}
    lines = list(differences(stored, wanted))
    assert [line.split(":")[0] for line in lines] == ["a", "b.c", "b.d"]
    assert "(1000 values)" in lines[0]
    assert max(map(len, lines)) < 200
    assert list(differences(stored, stored)) == []


# mistakes and failures -----------------------------------------------------------------------


def test_unwritable_folder_is_said_before_any_work(tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DEMO_LOG", str(tmp_path / "log"))
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        assert run(out) == 2
        said = capsys.readouterr().err
        assert f"cannot write to {out}" in said
        assert "choose another folder with --out" in said
    assert not (tmp_path / "log").exists()
    monkeypatch.setattr(Path, "write_bytes", lambda *_: (_ for _ in ()).throw(PermissionError(13)))
    assert run(tmp_path / "new") == 2


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--seeds", "0"], "must be at least 1; got 0"),
        (["--seeds", "2.5"], "invalid"),
        (["--seed", "-1"], "must be at least 0"),
        (["--jobs", "0"], "must be at least 1"),
        (["--width", "vogue"], "invalid choice"),
        (["--cluster", "local"], "unrecognized arguments"),
        (["--shard", "0/3"], "must be i/k with i from 1 to k; got '0/3'"),
        (["--shard", "two"], "must be i/k, as 2/10; got 'two'"),
        (["--shard", "1/2", "--merge"], "not allowed with"),
        (["--scale", "-1"], "`--scale` must be positive; got -1.0."),
    ],
)
def test_wrong_flags(tmp_path, capsys, flags, text):
    try:
        code = run(tmp_path, *flags)
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert text in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_failed_points_end_without_a_figure_and_are_tried_again(
    done, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("DEMO_FAIL", "1.5")
    assert run(tmp_path) == 1
    said = capsys.readouterr().err
    assert "6 of 24 points of main failed" in said
    assert "ArithmeticError: this x is unlucky" in said
    assert "No figure is drawn from incomplete data" in said
    assert {p.name for p in tmp_path.rglob("*") if p.is_file()} == {"demo.sqlite"}
    monkeypatch.delenv("DEMO_FAIL")
    monkeypatch.setenv("DEMO_LOG", str(tmp_path / "log"))
    assert run(tmp_path) == 1
    assert "--retry-failed" in capsys.readouterr().err
    assert not (tmp_path / "log").exists()
    assert run(tmp_path, "--retry-failed") == 0
    assert len((tmp_path / "log").read_text().splitlines()) == 6
    assert delivered(tmp_path) == delivered(done)


def test_damaged_store_is_said_and_mended(done, tmp_path, caplog, monkeypatch):
    out = copied(done, tmp_path)
    store = out / "data" / "demo.sqlite"
    whole = store.read_bytes()
    damaged = bytearray(whole)
    damaged[whole.rindex(b"rather high"[:1] + b"\0\0\0a\0\0\0t")] ^= 1
    store.write_bytes(damaged)
    monkeypatch.setenv("DEMO_LOG", str(tmp_path / "log"))
    assert run(out) == 0
    assert "1 of its checksums are wrong" in caplog.text
    assert (out / "data" / "demo.set-aside-1.sqlite").read_bytes() == damaged
    assert len((tmp_path / "log").read_text().splitlines()) == 1
    assert delivered(out) == delivered(done)


def test_second_driver_is_refused(done, tmp_path, capsys):
    out = copied(done, tmp_path)
    with Store(out / "data" / "demo.sqlite"):
        assert run(out) == 2
    assert "in use by another run" in capsys.readouterr().err


def test_help_names_every_flag(capsys):
    with pytest.raises(SystemExit) as end:
        STUDY.main(["--help"])
    assert end.value.code == 0
    said = capsys.readouterr().out
    flags = "quick redraw seed seeds jobs width out scale scheduler shard merge retry-failed"
    for flag in flags.split():
        assert f"--{flag}" in said
    assert "Noise does not depend on x." in said


def test_a_figure_of_another_width_is_refused(done, tmp_path, monkeypatch):
    def narrow(data, width):
        from matplotlib.figure import Figure

        return Figure(figsize=(width / 2, 1.0))

    out = copied(done, tmp_path)
    object.__setattr__(STUDY, "draw", narrow)
    try:
        with pytest.raises(ValueError, match=r"5\.5 inches wide"):
            run(out, "--redraw")
    finally:
        object.__setattr__(STUDY, "draw", demo_study.draw)


@pytest.mark.parametrize("how", [("--jobs", "1"), ("--at-once", "2")])
def test_all_studies_run_and_are_summed_up(tmp_path, how):
    folder = tmp_path / "studies"
    folder.mkdir()
    shutil.copy(ROOT / "studies" / "__main__.py", folder)
    shutil.copy(SCRIPT, folder / "demo.py")
    (folder / "broken.py").write_text("raise SystemExit(1)")
    (folder / "_text.py").write_text("raise SystemExit(1)")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def studies(*flags):
        return subprocess.run(
            [sys.executable, "-m", "studies", *flags],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )

    every = studies("--quick", *how)
    assert every.returncode == 1
    # what a study says stands in one piece below its name
    assert re.search(r"^== demo\n[^=]*^written:", every.stdout, re.MULTILINE)
    assert re.search(r"^broken +FAILED \(1\) in", every.stdout, re.MULTILINE)
    assert re.search(r"^demo +done in", every.stdout, re.MULTILINE)
    assert (tmp_path / "figures" / "quick" / "demo.pdf").exists()
    named = studies("nonsense")
    assert named.returncode == 2
    assert "known: broken, demo" in named.stderr
    assert studies("--at-once", "0").returncode == 2


def test_limits_of_threads_are_restored_by_a_run(tmp_path):
    from threadpoolctl import threadpool_info

    before = threadpool_info()
    with single_threaded_blas():
        assert run(tmp_path, "--quick") == 0
    assert threadpool_info() == before
