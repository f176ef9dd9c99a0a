"""The studies' input files are the ones their README describes."""

from __future__ import annotations

import hashlib
import re

import numpy as np
from helpers import FLIPFLOP, ROOT
from naive import jacobians, log_norms, rollout

DATA = ROOT / "studies" / "data"


def test_text_is_the_one_described() -> None:
    text = (DATA / "python_topics.txt").read_bytes()
    described = (DATA / "README.md").read_text(encoding="utf-8")
    assert len(text) == 100_000
    assert hashlib.sha256(text).hexdigest() in described
    assert text.isascii()
    assert f"\n{len(set(text))} different characters" in described


def test_notices_stand_beside_the_data() -> None:
    licence = (DATA / "LICENSE-PSF-2.0.txt").read_text(encoding="utf-8")
    assert "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2" in licence
    assert "Python Software Foundation;\nAll Rights Reserved" in licence
    assert "Version 2.0, January 2004" in (FLIPFLOP.parent / "LICENSE-APACHE-2.0.txt").read_text()
    assert "Matthew D. Golub" in (FLIPFLOP.parent / "README.md").read_text(encoding="utf-8")


def test_weights_reproduce_their_reference(flipflop: tuple) -> None:
    meta, arrays = flipflop
    for name, (shape, dtype) in meta["arrays"].items():
        assert (arrays[name].shape, arrays[name].dtype) == (tuple(shape), np.dtype(dtype))
    own = {name: array.astype(float) for name, array in arrays.items()}
    _, z = rollout(own["W_hh"], own["U"], W_xh=own["W_ih"], b=own["b_ih"] + own["b_hh"])
    norms = log_norms(jacobians(own["W_hh"], z), anchor="end") / np.log(10)
    expected = meta["reference"]["pulses_T500"]["log10_norm_lag"]
    for lag, value in expected.items():
        assert abs(norms[int(lag)] - value) < 1e-9


def test_constraints_name_versions_and_nothing_else() -> None:
    for line in (ROOT / "studies" / "constraints.txt").read_text(encoding="utf-8").splitlines():
        assert re.fullmatch(r"[a-z0-9-]+==[0-9a-z.]+( ; [a-z_]+ [<>=]+ '[a-z0-9.]+')?", line), line
