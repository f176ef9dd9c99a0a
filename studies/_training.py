"""Training on the library's own gradients: a recurrent cell with a linear readout, SGD and Adam."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import gradprop as gp
from gradprop.cells.base import Cell

Array = NDArray[Any]
Parameters = dict[str, Array]
KINDS = ("vanilla", "orthogonal", "identity", "diagonal", "lstm", "gru")


@dataclasses.dataclass
class Batch:
    """Sequences x (B, T, d_x), and labels (B,) or targets (B, d_y) for the last valid step.

    With a mask (B, T) the loss is at its steps, and labels are (B, T), targets (B, T, d_y).
    """

    x: Array
    target: Array
    lengths: Array | None = None
    mask: Array | None = None

    def losses(self) -> tuple[tuple[Array, Array], Array]:
        """(sequence, step) of every loss, and what is wanted there."""
        if self.mask is not None:
            at = np.nonzero(self.mask)
            return (at[0], at[1]), self.target[at]
        B, T = self.x.shape[:2]
        last = np.full(B, T - 1) if self.lengths is None else np.asarray(self.lengths) - 1
        return (np.arange(B), last), self.target


@dataclasses.dataclass
class Model:
    """A cell whose last valid h goes through a linear readout.

    ``parameters`` holds the cell's arrays, then W_hy (d_y, n) and b_y (d_y,). The kind "diagonal"
    has relu units that see only themselves [1]: of its W_hh only the diagonal is trained.

    [1] S. Li et al., Independently recurrent neural network (IndRNN), CVPR 2018, equation 4.
    """

    kind: str
    parameters: Parameters

    @property
    def cell(self) -> Cell:
        """The cell for the present parameters."""
        p = self.parameters
        if self.kind == "lstm":
            return gp.LSTM(p["W_hh"], p["W_xh"], p["b"])
        if self.kind == "gru":
            return gp.GRU(p["W_hh"], p["W_xh"], p["b_x"], p["b_h"])
        relu = self.kind in ("identity", "diagonal")
        return gp.RNN(p["W_hh"], p["W_xh"], p["b"], activation="relu" if relu else "tanh")

    @property
    def n(self) -> int:
        """Units."""
        return int(self.parameters["W_hy"].shape[1])

    def copy(self) -> Model:
        """The same network, trained from here on its own."""
        return Model(self.kind, {name: a.copy() for name, a in self.parameters.items()})

    def predict(self, x: Array, lengths: Array | None = None) -> Array:
        """Readout at the last valid step, (B, d_y)."""
        return self.read(gp.rollout(self.cell, x, lengths=lengths).h[:, -1])

    def read(self, h: Array) -> Array:
        """Readout of states (..., n)."""
        return np.asarray(h @ self.parameters["W_hy"].T + self.parameters["b_y"])


def make(
    kind: str,
    n: int,
    d_x: int,
    d_y: int,
    rng: np.random.Generator,
    *,
    forget_bias: float = 1.0,
    dtype: Any = np.float32,
) -> Model:
    """A fresh network. Readout and, for vanilla, LSTM and GRU, all weights: U(+-1/sqrt(n)).

    "orthogonal": W_hh orthogonal, tanh; "identity": W_hh = I, relu; "diagonal": the diagonal
    uniform in [0, 1], relu; their input weights N(0, 1/d_x), biases 0.
    """
    edge = n**-0.5
    rows = {"lstm": 4, "gru": 3}.get(kind, 1) * n
    if kind in ("vanilla", "lstm", "gru"):
        drawn: Parameters = {
            "W_hh": rng.uniform(-edge, edge, (rows, n)),
            "W_xh": rng.uniform(-edge, edge, (rows, d_x)),
        }
        names = ("b_x", "b_h") if kind == "gru" else ("b",)
        drawn |= {name: rng.uniform(-edge, edge, rows) for name in names}
        if kind == "lstm":
            drawn["b"][n : 2 * n] += forget_bias
    else:
        drawn = {
            "W_hh": _recurrent(kind, n, rng),
            "W_xh": rng.normal(0.0, d_x**-0.5, (n, d_x)),
            "b": np.zeros(n),
        }
    drawn["W_hy"] = rng.uniform(-edge, edge, (d_y, n))
    drawn["b_y"] = np.zeros(d_y)
    return Model(kind, {name: a.astype(dtype) for name, a in drawn.items()})


def _recurrent(kind: str, n: int, rng: np.random.Generator) -> Array:
    if kind == "orthogonal":
        return np.asarray(gp.initialise("orthogonal", n, rng=rng))
    return np.eye(n) if kind == "identity" else np.diag(rng.uniform(0.0, 1.0, n))


def squared_error(prediction: Array, target: Array) -> tuple[float, Array]:
    """Mean squared error and its gradient."""
    loss = gp.mean_squared_error(prediction[:, None], target[:, None])
    return loss.value, loss.gradient[:, 0]


def cross_entropy(prediction: Array, target: Array) -> tuple[float, Array]:
    """Mean cross-entropy in nats and its gradient."""
    loss = gp.cross_entropy(prediction[:, None], target[:, None])
    return loss.value, loss.gradient[:, 0]


LossFunction = Callable[[Array, Array], tuple[float, Array]]


def loss_and_gradients(
    model: Model,
    batch: Batch,
    loss: LossFunction,
    window: int | None = None,
    h0: Array | None = None,
) -> tuple[float, Parameters]:
    """Loss of the readout where the batch has one, and the gradients of all parameters."""
    found: dict[str, Any] = {}
    W_hy, b_y = model.parameters["W_hy"], model.parameters["b_y"]
    at, target = batch.losses()

    def at_h(h: Array) -> Array:
        read = h[at]
        found["loss"], g = loss(read @ W_hy.T + b_y, target)
        found["W_hy"], found["b_y"] = g.T @ read, g.sum(axis=0)
        out = np.zeros_like(h)
        out[at] = g @ W_hy
        return out

    grads = gp.backward(model.cell, batch.x, at_h, h0=h0, lengths=batch.lengths, window=window)
    parameters = {**grads.parameters, "W_hy": found["W_hy"], "b_y": found["b_y"]}
    if model.kind == "diagonal":
        parameters["W_hh"] = np.diag(np.diag(parameters["W_hh"]))
    return float(found["loss"]), parameters


def outputs(model: Model, batch: Batch) -> tuple[Array, Array]:
    """Readout at every loss of a batch, and what is wanted there."""
    at, target = batch.losses()
    return model.read(gp.rollout(model.cell, batch.x, lengths=batch.lengths).h[:, 1:][at]), target


class Optimiser(Protocol):
    """Changes parameters in place."""

    def step(self, parameters: Parameters, grads: Parameters) -> None:
        """One update."""


@dataclasses.dataclass
class SGD:
    """Plain stochastic gradient descent."""

    rate: float

    def step(self, parameters: Parameters, grads: Parameters) -> None:
        """One update."""
        for name, g in grads.items():
            parameters[name] -= (self.rate * g).astype(parameters[name].dtype)


@dataclasses.dataclass
class Adam:
    """Adam (D. P. Kingma, J. Ba, ICLR 2015, algorithm 1)."""

    rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    updates: int = 0
    moments: dict[str, tuple[Array, Array]] = dataclasses.field(default_factory=dict)

    def step(self, parameters: Parameters, grads: Parameters) -> None:
        """One update."""
        self.updates += 1
        scale = np.sqrt(1 - self.beta2**self.updates) / (1 - self.beta1**self.updates)
        for name, g in grads.items():
            m, v = self.moments.get(name, (np.zeros_like(g), np.zeros_like(g)))
            m = self.beta1 * m + (1 - self.beta1) * g
            v = self.beta2 * v + (1 - self.beta2) * g * g
            self.moments[name] = m, v
            # eps as in the algorithm's text: beside the bias-corrected root of v
            eps = self.eps * np.sqrt(1 - self.beta2**self.updates)
            change = self.rate * scale * m / (np.sqrt(v) + eps)
            parameters[name] -= change.astype(parameters[name].dtype)


@dataclasses.dataclass
class Record:
    """What a run left behind: one entry per update that was made."""

    loss: list[float] = dataclasses.field(default_factory=list)
    norm: list[float] = dataclasses.field(default_factory=list)
    clipped: list[bool] = dataclasses.field(default_factory=list)
    diverged: str = ""

    @property
    def updates(self) -> int:
        """Updates made."""
        return len(self.loss)


def train(
    model: Model,
    batches: Iterator[Batch],
    optimiser: Optimiser,
    n_updates: int,
    loss: LossFunction,
    *,
    max_norm: float | None = None,
    window: int | None = None,
    watch: Callable[[int, Record], bool] | None = None,
) -> Record:
    """Train `model` in place.

    `watch(updates, record)` is called after every update; True ends the run. A loss, orbit or
    gradient that leaves the range of floats ends it too: ``record.diverged`` says at which update,
    and the last norm before it.
    """
    record = Record()
    for update in range(1, n_updates + 1):
        try:
            value, grads = loss_and_gradients(model, next(batches), loss, window)
            norm = gp.global_norm(grads)
            if not np.isfinite(value + norm):
                raise ValueError(f"loss {value}, norm of the gradient {norm}")
        except ValueError as error:
            last = f"{record.norm[-1]:.3g}" if record.norm else "none"
            record.diverged = f"update {update}: {error} (norm of the update before: {last})"
            break
        clipped = max_norm is not None and norm > max_norm
        if clipped and max_norm is not None:
            grads, _ = gp.clip_by_global_norm(grads, max_norm)
        optimiser.step(model.parameters, grads)
        record.loss.append(value)
        record.norm.append(norm)
        record.clipped.append(clipped)
        if watch is not None and watch(update, record):
            break
    return record


def epochs(data: Batch, size: int, rng: np.random.Generator) -> Iterator[Batch]:
    """Batches for ever: each epoch a new order, what is left over of it dropped."""
    while True:
        order = rng.permutation(len(data.x))
        for i in range(0, len(order) - size + 1, size):
            rows = order[i : i + size]
            lengths = None if data.lengths is None else data.lengths[rows]
            mask = None if data.mask is None else data.mask[rows]
            yield Batch(data.x[rows], data.target[rows], lengths, mask)
