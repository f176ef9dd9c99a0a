"""Parts computed by separate jobs, and the commands on stores: nothing lost, mixed or guessed."""

from __future__ import annotations

import re
import shutil
import subprocess

import demo_study
import numpy as np
import pytest
from demo_study import STUDY
from helpers import ROOT

from gradprop import cli
from gradprop._shards import Shard
from gradprop._storemerge import StoresDifferError, merge_store
from gradprop._studyflags import study_parser
from gradprop.store import Record, Store, StoreError, read_csv

DELIVERED = ("data/demo.npz", "data/demo.csv", "data/demo_people.csv", "demo.pdf", "demo.png")


def run(out, *flags):
    return STUDY.main(["--out", str(out), "--jobs", "1", *flags])


def filled(path, records):
    with Store(path) as store:
        store.put(records)
    return path


def some(number=5, payload=b"payload", **changed):
    given = {"settings": "s", "code": "1", **changed}
    return [
        Record("main", given["settings"], f'{{"rho":{i}}}', given["code"], payload)
        for i in range(number)
    ]


def damaged(path):
    whole = bytearray(path.read_bytes())
    whole[whole.rindex(b"verdict") - 3] ^= 1
    path.write_bytes(whole)
    return path


# parts ---------------------------------------------------------------------------------------


def test_every_point_is_in_one_part():
    keys = [f'{{"rho":{i}}}' for i in range(3000)]
    for total in (1, 3, 7):
        shards = [Shard(number, total) for number in range(1, total + 1)]
        owners = [[shard.number for shard in shards if shard.has(key)] for key in keys]
        assert all(len(found) == 1 for found in owners)
        counts = np.bincount([found[0] for found in owners])[1:]
        assert np.abs(counts - 3000 / total).max() < 5 * np.sqrt(3000 / total)


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/0", "-1/2", "a/b", "1/2/3", "1.0/2"])
def test_wrong_parts(text):
    with pytest.raises(ValueError, match="must be i/k"):
        Shard.parse(text)


def test_parts_are_merged_to_the_same_bytes(tmp_path, capsys, monkeypatch):
    whole, parts, log = tmp_path / "whole", tmp_path / "parts", tmp_path / "log"
    assert run(whole) == 0
    assert run(parts, "--merge") == 2
    assert "there are no parts beside" in capsys.readouterr().err
    monkeypatch.setenv("DEMO_LOG", str(log))
    for number in (3, 1, 2):
        assert run(parts, "--shard", f"{number}/3") == 0
        assert f"part {number}/3 is in" in capsys.readouterr().err
    assert not (parts / "demo.pdf").exists()
    assert len(log.read_text().splitlines()) == 24
    assert run(parts, "--merge") == 0
    assert len(log.read_text().splitlines()) == 24
    assert "records taken over" in capsys.readouterr().err
    for name in DELIVERED:
        assert (whole / name).read_bytes() == (parts / name).read_bytes()
    # More seeds: only the new points, in their own parts.
    for number in (1, 2):
        assert run(parts, "--seeds", "4", "--shard", f"{number}/2") == 0
    assert len(log.read_text().splitlines()) == 24 + 8
    assert run(parts, "--seeds", "4", "--merge") == 0
    assert len(log.read_text().splitlines()) == 24 + 8


def test_missing_and_damaged_parts_cost_time_alone(tmp_path, capsys, monkeypatch):
    whole, parts, log = tmp_path / "whole", tmp_path / "parts", tmp_path / "log"
    assert run(whole) == 0
    for number in (1, 2):
        assert run(parts, "--shard", f"{number}/3") == 0
    damaged(parts / "data" / "demo.shard-2-of-3.sqlite")
    monkeypatch.setenv("DEMO_LOG", str(log))
    capsys.readouterr()
    assert run(parts, "--merge") == 0
    assert "1 of its checksums are wrong" in capsys.readouterr().err
    missing = sum(
        Shard(3, 3).has(f'{{"kind":"{kind}","seed":{seed},"x":{x}}}')
        for kind in "ab"
        for x in ("0.5", "1", "1.5", "2")
        for seed in range(3)
    )
    assert len(log.read_text().splitlines()) == missing + 1
    for name in DELIVERED:
        assert (whole / name).read_bytes() == (parts / name).read_bytes()


def test_a_part_with_failures_says_so(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DEMO_FAIL", "1.5")
    assert run(tmp_path, "--shard", "1/2") == 1
    said = capsys.readouterr().err
    assert "this x is unlucky" in said
    assert "All others of part 1/2 are finished." in said
    monkeypatch.delenv("DEMO_FAIL")
    assert run(tmp_path, "--shard", "1/2", "--retry-failed") == 0


# merging -------------------------------------------------------------------------------------


def test_merging_never_chooses_between_values(tmp_path):
    one = filled(tmp_path / "1.sqlite", some())
    other = [*some(7), *some(1, settings="t")]
    two = filled(tmp_path / "2.sqlite", other)
    bad = filled(tmp_path / "3.sqlite", [*some(1, settings="u"), *some(1, b"other")])
    with Store(one) as store:
        assert merge_store(store, two) == (3, "")
        assert merge_store(store, two) == (0, "")
        with pytest.raises(StoresDifferError, match=r'"rho":0.* differ between .*3\.sqlite'):
            merge_store(store, bad)
        assert len(list(store.records())) == 8  # nothing of the last one
        with pytest.raises(StoreError, match="there is no store"):
            merge_store(store, tmp_path / "nowhere.sqlite")


def test_finished_beats_failed_and_codes_can_be_asked_for(tmp_path):
    failed = [Record("main", "s", '{"rho":0}', "1", b"no luck", failed=True)]
    newer = some(2, b"newer", code="2")
    with Store() as store:
        store.put(failed)
        assert merge_store(store, filled(tmp_path / "1.sqlite", some(1))) == (1, "")
        assert merge_store(store, filled(tmp_path / "2.sqlite", failed)) == (0, "")
        path = filled(tmp_path / "3.sqlite", newer)
        assert merge_store(store, path, codes=["1"]) == (0, "")
        assert merge_store(store, path, codes=["2"]) == (2, "")
        assert {record.payload for record in store.records()} == {b"newer"}


def test_a_read_only_store_changes_nothing(tmp_path):
    path = filled(tmp_path / "1.sqlite", some())
    before = path.read_bytes()
    with Store(path, read_only=True) as store:
        assert len(store.finished("main", "s", "1")) == 5
        with pytest.raises(StoreError, match="cannot write"):
            store.put(some(6))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


# commands ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("done")
    assert run(out) == 0
    return out


def command(*words):
    return cli.main(["store", *map(str, words)])


def test_check_and_list(done, tmp_path, capsys):
    path = shutil.copy(done / "data" / "demo.sqlite", tmp_path / "a.sqlite")
    assert command("check", path) == 0
    assert "sound, 26 finished points, 0 failed" in capsys.readouterr().out
    assert command("list", path) == 0
    assert "24 finished, 0 failed" in capsys.readouterr().out
    damaged(path)
    before = path.read_bytes()
    assert command("check", path) == 1
    said = capsys.readouterr().out
    assert "1 of its checksums are wrong. 25 records are sound." in said
    assert "computes the others again" in said
    assert path.read_bytes() == before
    assert command("check", tmp_path / "b.sqlite") == 1
    assert "there is no store" in capsys.readouterr().err
    with Store(done / "data" / "demo.sqlite"):
        assert command("check", done / "data" / "demo.sqlite") == 1
    assert "in use by another run" in capsys.readouterr().err


def test_list_shows_failed_points(tmp_path, capsys):
    failed = [Record("main", "s", '{"rho":0}', "1", b"ValueError: no", failed=True)]
    path = filled(tmp_path / "a.sqlite", failed)
    assert command("list", path, "--failed") == 0
    said = capsys.readouterr().out
    assert "0 finished, 1 failed" in said
    assert 'main {"rho":0}: ValueError: no' in said


def test_merge_command(done, tmp_path, capsys):
    path = shutil.copy(done / "data" / "demo.sqlite", tmp_path / "a.sqlite")
    assert command("merge", tmp_path / "b.sqlite", path) == 0
    assert "26 records taken over" in capsys.readouterr().out
    assert command("merge", tmp_path / "c.sqlite", damaged(path)) == 1
    said = capsys.readouterr()
    assert "25 records taken over" in said.out
    assert "Its sound records were taken" in said.err


def test_export(done, tmp_path, capsys):
    path = done / "data" / "demo.sqlite"
    out = tmp_path / "main.csv"
    assert command("export", path, out) == 2
    assert "choose with --sweep: main, people" in capsys.readouterr().err
    assert command("export", path, out, "--sweep", "main") == 0
    table = read_csv(out).sort_values(["kind", "x", "seed"], ignore_index=True)
    assert table.equals(read_csv(done / "data" / "demo.csv")[list(table.columns)])
    assert command("export", path, tmp_path / "main.npz", "--sweep", "main") == 0
    with np.load(tmp_path / "main.npz") as arrays, np.load(done / "data" / "demo.npz") as whole:
        assert arrays["curve"].tobytes() == whole["main/curve"].tobytes()
    for words, text in (
        ((out, "--sweep", "nobody"), "no finished points"),
        ((out, "--sweep", "main", "--code", "9"), "no finished points"),
        ((tmp_path / "a.txt",), "must end in .csv or .npz"),
    ):
        assert command("export", path, *words) == 2
        assert text in capsys.readouterr().err


def test_the_job_array_of_the_documentation(tmp_path):
    """Run with a python that only prints its arguments, as the third of the jobs."""
    text = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    script = text.split("```bash\n")[1].split("```")[0]
    stub = tmp_path / "python"
    stub.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stub.chmod(0o755)
    done = subprocess.run(
        ["bash", "-euc", script],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_ARRAY_TASK_ID": "3", "PWD": "/x"},
        capture_output=True,
        text=True,
        check=True,
    )
    study, *flags = done.stdout.split()
    assert (ROOT / study).exists()
    options = study_parser("edge", "", "neurips", demo_study.draw).parse_args(flags)
    assert options.shard == Shard(3, 20)
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        compile(block, "cluster.md", "exec")
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        subprocess.run(["bash", "-n", "-c", block], check=True)
