"""The command line: what it prints, what it writes, and how it takes a user's mistakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from helpers import FLIPFLOP, ROOT

import gradprop as gp
from gradprop import cli
from gradprop._series import read_series


@pytest.fixture
def net(tmp_path):
    """A file with one LSTM of 2 units and inputs of width 3."""
    rng = np.random.default_rng(0)
    path = tmp_path / "net.npz"
    arrays = {"weight_ih_l0": (8, 3), "weight_hh_l0": (8, 2), "bias_ih_l0": 8, "bias_hh_l0": 8}
    np.savez(path, **{f"rnn.{k}": rng.standard_normal(shape) for k, shape in arrays.items()})
    return path


@pytest.fixture
def series(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(1).standard_normal((60, 3)))
    return path


def said(capsys, *argv):
    """Exit code, stdout and stderr of a command in this process."""
    code = cli.main([str(a) for a in argv])
    out, err = capsys.readouterr()
    return code, out, err


def in_a_process(*argv):
    return subprocess.run(
        [sys.executable, "-m", "gradprop", *map(str, argv)],
        capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


# ---- what it does --------------------------------------------------------------------------------


def test_diagnose_prints_the_summary_and_writes_both_files(net, series, tmp_path, capsys):
    page, numbers = tmp_path / "out.html", tmp_path / "out.json"
    code, out, err = said(
        capsys, "diagnose", net, "--input", series, "--samples", 1000, "--fmt", "bfloat16",
        "--html", page, "--json", numbers,
    )  # fmt: skip
    found = gp.diagnose(gp.load_cell(net), np.load(series), samples=1000, fmt="bfloat16")
    assert (code, err) == (0, "")
    assert out.startswith(found.summary() + "\n")
    assert out.splitlines()[-2:] == [f"  {page}", f"  {numbers}"]
    assert json.loads(numbers.read_text())["verdict"] == found.verdict
    assert found.verdict in page.read_text(encoding="utf-8")


def test_list_shows_prefix_and_other_arrays(tmp_path, net, capsys):
    code, out, _ = said(capsys, "list", net)
    assert code == 0
    row = out.splitlines()[1].split()
    assert row[1:8] == ["rnn", "torch", "LSTM", "2", "3", "1", "1"]
    assert "U, W_out, b_out, target" in said(capsys, "list", FLIPFLOP)[1]


def test_options_reach_the_cell(tmp_path, capsys):
    path = tmp_path / "keras.npz"
    rng = np.random.default_rng(2)
    arrays = {"kernel": (1, 6), "recurrent_kernel": (2, 6)}
    np.savez(path, **{f"gru/{k}": rng.standard_normal(shape) for k, shape in arrays.items()})
    code, _, err = said(capsys, "diagnose", path, "--convention", "keras", "--option", "kind=GRU")
    assert code == 2
    assert "reset_after" in err
    args = ("--convention", "keras", "--option", "kind=GRU", "--option", "reset_after=false")
    code, out, _ = said(capsys, "diagnose", path, *args)
    assert code == 0
    assert "GRU, 2 tanh units, input 1 wide" in out


def test_info_names_versions_blas_threads_and_cache(capsys):
    code, out, _ = said(capsys, "info")
    assert code == 0
    facts = {line.split()[0]: line for line in out.splitlines()}
    assert gp.__version__ in facts["gradprop"]
    assert np.__version__ in facts["numpy"]
    assert "threads" in facts["blas"]
    assert "False" in facts["flushes_subnormals"]
    assert "compiled code in" in out


def test_studies_run_in_their_own_process(capfd):
    code = cli.main(["study", "edge_of_chaos", "--help"])
    assert code == 0
    assert "--quick" in capfd.readouterr().out
    assert cli.main(["study", "edge_of_chaos", "--seeds", "0"]) == 2


def test_the_command_itself():
    helped = in_a_process("--help")
    assert helped.returncode == 0
    for word in ("diagnose", "list", "info", "warmup", "study", "examples:", "exit codes"):
        assert word in helped.stdout
    version = in_a_process("--version")
    assert version.stdout == f"gradprop {gp.__version__}\n"
    missing = in_a_process("diagnose", "nowhere.npz")
    assert missing.returncode == 2
    assert missing.stderr == "gradprop: nowhere.npz: No such file or directory.\n"
    assert in_a_process("diagnose").returncode == 2


def test_help_of_a_command_has_examples(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["diagnose", "--help"])
    assert stop.value.code == 0
    assert "gradprop diagnose net.npz --input series.npy" in capsys.readouterr().out


def test_the_entry_point_is_declared():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'gradprop = "gradprop.cli:main"' in text


# ---- mistakes ------------------------------------------------------------------------------------


def saved(tmp_path, name, array):
    path = tmp_path / name
    np.save(path, array)
    return path


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.ones((9, 4)), ["3", "(9, 4)"]),
        (np.where(np.arange(12).reshape(4, 3) == 7, np.nan, 1.0), ["1 gaps", "step 3, column 2"]),
        (np.empty((0, 3)), ["at least one step"]),
        (np.array([["a", "b", "c"]]), ["real numbers"]),
        (np.ones((2, 2, 2, 3)), ["(2, 2, 2, 3)"]),
    ],
)
def test_bad_series(array, words, net, tmp_path, capsys):
    code, out, err = said(capsys, "diagnose", net, "--input", saved(tmp_path, "s.npy", array))
    assert (code, out) == (2, "")
    assert err.startswith("gradprop: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


def test_objects_in_a_series_are_not_unpickled(net, tmp_path, capsys):
    path = tmp_path / "s.npy"
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    assert said(capsys, "diagnose", net, "--input", path)[0] == 2


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--fmt", "float12"), "float12"),
        (("--samples", "0"), "samples"),
        (("--prefix", "gru"), "gru"),
        (("--convention", "caffe"), "caffe"),
        (("--html", "nowhere/out.html"), "no folder 'nowhere'"),
        (("--option", "reset_after"), "NAME=VALUE"),
        (("--input", "series.mat"), ".npy, .npz or .csv"),
        (("--input", "nowhere.csv"), "nowhere.csv"),
    ],
)
def test_bad_flags(argv, words, net, capsys):
    code, _, err = said(capsys, "diagnose", net, *argv)
    assert code == 2
    assert words in err


def test_other_mistakes(tmp_path, capsys):
    code, _, err = said(capsys, "diagnose", FLIPFLOP)
    assert code == 2
    assert err.endswith("(--convention C)\n")
    code, _, err = said(capsys, "study", "nothing")
    assert code == 2
    assert "edge_of_chaos" in err
    empty = tmp_path / "empty.npz"
    np.savez(empty, dense=np.ones(3))
    code, _, err = said(capsys, "list", empty)
    assert code == 2
    assert "dense" in err


def test_an_interrupt_is_no_traceback(monkeypatch, capsys):
    def interrupted(path):
        raise KeyboardInterrupt

    monkeypatch.setattr("gradprop.weights.files.list_cells", interrupted)
    code, _, err = said(capsys, "list", FLIPFLOP)
    assert (code, err) == (130, "gradprop: interrupted.\n")


def test_a_failure_is_not_taken_for_a_mistake(monkeypatch):
    def broken(path):
        raise ZeroDivisionError

    monkeypatch.setattr("gradprop.weights.files.list_cells", broken)
    with pytest.raises(ZeroDivisionError):
        cli.main(["list", str(FLIPFLOP)])


# ---- series --------------------------------------------------------------------------------------


def test_series_of_all_kinds(tmp_path):
    x = np.random.default_rng(3).standard_normal((5, 2))
    np.savez(tmp_path / "one.npz", anything=x)
    np.savez(tmp_path / "two.npz", x=x[None], lengths=[4], other=x)
    np.savez(tmp_path / "three.npz", a=x, b=x + 1)
    headed, bare = tmp_path / "headed.csv", tmp_path / "bare.csv"
    rows = "\n".join(",".join(map(repr, row)) for row in x.tolist())
    headed.write_text(f"flow,rain\n{rows}\n")
    bare.write_text(f"{rows}\n")
    for path in (tmp_path / "one.npz", headed, bare):
        found, lengths = read_series(path)
        np.testing.assert_array_equal(found, x)
        assert lengths is None
    found, lengths = read_series(tmp_path / "two.npz")
    assert (found.shape, lengths.tolist()) == ((1, 5, 2), [4])
    np.testing.assert_array_equal(read_series(tmp_path / "three.npz", "b")[0], x + 1)
    with pytest.raises(ValueError, match="several arrays: say --key, one of a, b"):
        read_series(tmp_path / "three.npz")
    with pytest.raises(ValueError, match="no array 'c'"):
        read_series(tmp_path / "three.npz", "c")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,2\n3,\n5,6\n", "1 gaps.*step 2, column 2"),
        ("a,b\n1,x\n2,3\n", "text in column b"),
        ("", "no table"),
        ("1;2\n3;4\n", "text in column"),
    ],
)
def test_bad_tables(text, words, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        read_series(path)


def test_damaged_files(tmp_path):
    for name in ("s.npy", "s.npz"):
        path = tmp_path / name
        path.write_bytes(b"not an array")
        with pytest.raises(ValueError, match=r"no \.np[yz] file of numbers"):
            read_series(path)
