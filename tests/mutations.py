"""Damaged copies of weight files: a reader may refuse one, or read it right."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import gradprop as gp

FRAMEWORKS = Path(__file__).parent / "oracles" / "frameworks"
HEADER = 400
"""Bytes at either end where formats keep what they say about shapes and names."""


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """One of six kinds of damage."""
    kind, size = rng.integers(6), len(content)
    at = int(rng.integers(size))
    if kind == 0:  # cut off
        return content[:at]
    if kind == 1:  # a piece taken out, put in twice or moved
        other = int(rng.integers(at, size + 1))
        pieces = [content[:at], content[at:other], content[other:]]
        return b"".join(pieces[i] for i in rng.choice([0, 1, 2, 1], size=3))
    data = bytearray(content)
    if kind == 2:  # single bits anywhere
        for place in rng.integers(size, size=rng.integers(1, 6)):
            data[place] ^= 1 << int(rng.integers(8))
    elif kind == 3:  # bytes where the format describes itself
        ends = np.r_[0 : min(HEADER, size), max(size - HEADER, 0) : size]
        for place in rng.choice(ends, size=rng.integers(1, 9)):
            data[place] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(256))])
    elif kind == 4:  # a digit of a shape, an offset, a name
        digits = [i for i, byte in enumerate(data) if chr(byte).isdigit()]
        for place in rng.choice(digits, size=3) if digits else ():
            data[place] = ord(str(rng.integers(10)))
    else:  # a huge or negative number over eight bytes
        number = rng.choice([2**63 - 1, 2**31 - 1, -1, 2**40, 0], shuffle=False)
        data[at : at + 8] = int(number).to_bytes(8, "little", signed=True)
    return bytes(data)


def sources(kinds: tuple[str, ...]) -> dict[str, tuple[bytes, gp.LSTM | gp.Stacked]]:
    """File name -> content and the cell it holds."""
    found = {}
    for kind in kinds:
        if kind == "npz":
            for store in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                content = _npz(store)
                found[f"{store}.npz"] = content
        elif kind == "safetensors":
            for name in ("lstm.safetensors", "lstm_bfloat16.safetensors"):
                found[name] = (FRAMEWORKS / name).read_bytes()
        else:
            name = {"keras": "model.h5", "onnx": "lstm.onnx"}[kind]
            found[name] = (FRAMEWORKS / name).read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        return {
            name: (content, load(Path(folder), name, content)) for name, content in found.items()
        }


def _npz(store: int) -> bytes:
    arrays = gp.load_cell(FRAMEWORKS / "lstm.safetensors").cells[0].arrays()
    names = {"weight_hh_l0": "W_hh", "weight_ih_l0": "W_xh", "bias_ih_l0": "b", "bias_hh_l0": "b"}
    buffer = io.BytesIO()
    save = np.savez if store == zipfile.ZIP_STORED else np.savez_compressed
    save(buffer, **{name: arrays[own] for name, own in names.items()})
    return buffer.getvalue()


def load(folder: Path, name: str, content: bytes) -> gp.LSTM | gp.Stacked:
    """Load what `content` holds from a file of that name."""
    path = folder / name
    path.write_bytes(content)
    prefix = {"model.h5": "lstm", "lstm.onnx": "/LSTM"}.get(name)
    return gp.load_cell(path, prefix=prefix)


def shapes(cell: gp.LSTM | gp.Stacked) -> set[tuple[str, tuple[int, ...]]]:
    """What must survive: kind and shape of every array."""
    return {(type(cell).__name__ + name, array.shape) for name, array in cell.arrays().items()}


def outcomes(kinds: tuple[str, ...], count: int, seed: int) -> Iterator[tuple[str, str]]:
    """("read" or the error's name, detail) for `count` damaged files; anything else is raised."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        known = sources(kinds)
        names = list(known)
        for i in range(count):
            name = names[i % len(names)]
            content, whole = known[name]
            damaged = mutated(content, rng)
            try:
                cell = load(Path(folder), name, damaged)
            except (ValueError, TypeError) as error:
                yield type(error).__name__, str(error)
                continue
            wrong = shapes(cell) - shapes(whole)
            assert not wrong, f"{name}, damage {i} of seed {seed}: read with {wrong}"
            yield "read", name
