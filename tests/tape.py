"""Reverse-mode differentiation of array expressions: a tape that knows nothing of networks.

    W, h = Var(W0), Var(h0)
    loss = ((tanh(W @ h) - target) ** 2).sum()
    backward(loss)                                  # W.grad, h.grad: d loss / d value

Operands may be plain arrays; shapes broadcast as in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Pullback = Callable[[Array], Array]


class Var:
    """An array, and how it came about: each parent with the pullback of a cotangent to it."""

    __array_ufunc__ = None  # array + Var is Var's business

    def __init__(self, value: ArrayLike, *parents: tuple[Var, Pullback]) -> None:
        self.value: Array = np.array(value, dtype=np.float64)
        self.grad: Array = np.zeros_like(self.value)
        self.parents = parents

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def __add__(self, other: Operand) -> Var:
        return _binary(self, other, np.add, lambda g, a, b: g, lambda g, a, b: g)

    def __sub__(self, other: Operand) -> Var:
        return _binary(self, other, np.subtract, lambda g, a, b: g, lambda g, a, b: -g)

    def __mul__(self, other: Operand) -> Var:
        return _binary(self, other, np.multiply, lambda g, a, b: g * b, lambda g, a, b: g * a)

    def __truediv__(self, other: Operand) -> Var:
        return _binary(
            self, other, np.divide, lambda g, a, b: g / b, lambda g, a, b: -g * a / (b * b)
        )

    def __matmul__(self, other: Operand) -> Var:
        return matmul(self, other)

    def __neg__(self) -> Var:
        return self * -1.0

    def __pow__(self, power: float) -> Var:
        return elementwise(self, lambda v: v**power, lambda v: power * v ** (power - 1))

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: ArrayLike) -> Var:
        return Var(other) - self

    def __rtruediv__(self, other: ArrayLike) -> Var:
        return Var(other) / self

    def __rmatmul__(self, other: ArrayLike) -> Var:
        return matmul(other, self)

    def __getitem__(self, index: Any) -> Var:
        def pullback(g: Array) -> Array:
            out = np.zeros_like(self.value)
            np.add.at(out, index, g)
            return out

        return Var(self.value[index], (self, pullback))

    @property
    def T(self) -> Var:
        return Var(self.value.T, (self, np.transpose))

    def sum(self, axis: int | None = None) -> Var:
        def pullback(g: Array) -> Array:
            return np.broadcast_to(g if axis is None else np.expand_dims(g, axis), self.shape)

        return Var(self.value.sum(axis=axis), (self, pullback))


Operand = Var | ArrayLike


def _var(value: Operand) -> Var:
    return value if isinstance(value, Var) else Var(value)


def _reduced(g: Array, shape: tuple[int, ...]) -> Array:
    """Sum over the axes along which an operand of `shape` was broadcast."""
    g = g.sum(axis=tuple(range(g.ndim - len(shape))))
    return g.sum(axis=tuple(i for i, size in enumerate(shape) if size == 1), keepdims=True).reshape(
        shape
    )


def _binary(left: Operand, right: Operand, f: Any, to_left: Any, to_right: Any) -> Var:
    a, b = _var(left), _var(right)
    return Var(
        f(a.value, b.value),
        (a, lambda g: _reduced(to_left(g, a.value, b.value), a.shape)),
        (b, lambda g: _reduced(to_right(g, a.value, b.value), b.shape)),
    )


def matmul(left: Operand, right: Operand) -> Var:
    """As `np.matmul`, vectors included."""
    a, b = _var(left), _var(right)
    A = a.value if a.value.ndim > 1 else a.value[None, :]
    B = b.value if b.value.ndim > 1 else b.value[:, None]
    full = (A @ B).shape

    def to_left(g: Array) -> Array:
        return _reduced(g.reshape(full) @ B.swapaxes(-1, -2), A.shape).reshape(a.shape)

    def to_right(g: Array) -> Array:
        return _reduced(A.swapaxes(-1, -2) @ g.reshape(full), B.shape).reshape(b.shape)

    return Var(a.value @ b.value, (a, to_left), (b, to_right))


def elementwise(x: Operand, f: Callable[[Array], Array], slope: Callable[[Array], Array]) -> Var:
    """f entry by entry, with its derivative."""
    x = _var(x)
    return Var(f(x.value), (x, lambda g: g * slope(x.value)))


def tanh(x: Operand) -> Var:
    return elementwise(x, np.tanh, lambda v: 1 / np.cosh(v) ** 2)


def exp(x: Operand) -> Var:
    return elementwise(x, np.exp, np.exp)


def log(x: Operand) -> Var:
    return elementwise(x, np.log, lambda v: 1 / v)


def sigmoid(x: Operand) -> Var:
    return elementwise(x, lambda v: 1 / (1 + np.exp(-v)), lambda v: 0.25 / np.cosh(v / 2) ** 2)


def relu(x: Operand) -> Var:
    return elementwise(x, lambda v: np.maximum(v, 0), lambda v: (v > 0).astype(float))


def concatenate(parts: Iterable[Operand], axis: int = 0) -> Var:
    """As `np.concatenate`."""
    members = [_var(part) for part in parts]
    cuts = np.cumsum([member.shape[axis] for member in members])[:-1]

    def pullback(i: int) -> Pullback:
        return lambda g: np.split(g, cuts, axis=axis)[i]

    whole = np.concatenate([member.value for member in members], axis=axis)
    return Var(whole, *((member, pullback(i)) for i, member in enumerate(members)))


def backward(result: Var, cotangent: ArrayLike = 1.0) -> None:
    """Set `grad` = d <cotangent, result> / d value of everything that `result` came from."""
    ahead: list[Var] = []
    seen: set[int] = set()
    pending = [(result, False)]
    while pending:
        node, done = pending.pop()
        if done:
            ahead.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            pending.append((node, True))
            pending.extend((parent, False) for parent, _ in node.parents)
    for node in ahead:
        node.grad = np.zeros_like(node.value)
    result.grad = np.broadcast_to(np.asarray(cotangent, dtype=float), result.shape).copy()
    for node in reversed(ahead):
        for parent, pullback in node.parents:
            parent.grad = parent.grad + pullback(node.grad)
