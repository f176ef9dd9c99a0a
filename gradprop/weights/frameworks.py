"""Cells and chains from objects in memory: PyTorch modules, step functions of JAX and PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from gradprop import _checks
from gradprop.blocks import Float
from gradprop.cells.base import Cell
from gradprop.chain import JacobianChain
from gradprop.weights.conventions import cell_from_arrays

_KINDS = {"RNN": "RNN", "GRU": "GRU", "LSTM": "LSTM"}
_KINDS |= {f"{kind}Cell": kind for kind in _KINDS.values()}
_ARRAYS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def from_torch(module: Any, *, layer: int | None = 0) -> Cell:
    """Build a cell from a PyTorch module in memory.

    Parameters
    ----------
    module : torch.nn.RNN, GRU, LSTM, RNNCell, GRUCell or LSTMCell
        Or a subclass of one. Effective weights are taken, so parametrised modules (weight norm,
        spectral norm) are read as they act.
    layer : int or None, default: 0
        One layer, counted from the bottom. None: the whole module.

    Returns
    -------
    RNN, LSTM, GRU, Stacked or Bidirectional
        Weights copied and cast to float64, both biases added there. Two directions make a
        `Bidirectional`, several layers (``layer=None``) a `Stacked`.

    Raises
    ------
    TypeError
        Another module (its recurrent submodules are named); a quantised one.
    ValueError
        A module in training mode with dropout: what it computes there is random, call ``.eval()``
        first; projections (``proj_size``); several layers of two directions with ``layer=None``,
        which are no one chain; a layer that there is not.

    Notes
    -----
    torch itself is not imported. Layer k > 0 of a module takes the h of the layer below as input.

    Examples
    --------
    Any object with the attributes of the module does, here one whose h' = tanh(h / 2 + x):

    >>> import gradprop as gp
    >>> class RNNCell:
    ...     __module__ = "torch.nn.modules.rnn"
    ...     weight_ih, weight_hh, bias_ih, bias_hh = [[1.0]], [[0.5]], None, None
    ...     input_size, hidden_size, nonlinearity, training = 1, 1, "tanh", False
    >>> gp.step_jacobian(gp.from_torch(RNNCell()), [0.0], [0.0]).tolist()
    [[0.5]]
    """
    kind = _torch_kind(module)
    n_layers = getattr(module, "num_layers", 1)
    if layer is not None:
        _checks.integer("layer", layer, minimum=0, maximum=n_layers - 1)
    if getattr(module, "proj_size", 0):
        raise ValueError(
            f"`module` must have proj_size 0; got {module.proj_size}: cells of this package have "
            "no projection of the hidden state; use from_torch_step."
        )
    dropout = getattr(module, "dropout", 0.0)
    if module.training and dropout:
        raise ValueError(
            f"`module` is in training mode with dropout {dropout}, so that what it computes is "
            "random: call module.eval() first."
        )
    options = {"kind": kind, "hidden_size": module.hidden_size}
    if kind == "RNN":
        options["nonlinearity"] = module.nonlinearity
    if n_layers > 1 and layer is not None:
        options["layer"] = layer
    return cell_from_arrays(_torch_arrays(module), convention="torch", options=options)


def _torch_kind(module: Any) -> str:
    """Kind of the module; TypeError with advice for what is no recurrent layer."""
    names = [(base.__name__, base.__module__) for base in type(module).__mro__]
    if any("quantiz" in home for _, home in names):
        raise TypeError(
            f"`module` must hold float weights; got a quantised {type(module).__name__}: pass the "
            "float module it was made from."
        )
    for name, home in names:
        if name in _KINDS and home == "torch.nn.modules.rnn":
            return _KINDS[name]
    inner = [
        name
        for name, part in getattr(module, "named_modules", list)()
        if name and any(base.__module__ == "torch.nn.modules.rnn" for base in type(part).__mro__)
    ]
    hint = f" Pass one of its parts: {', '.join(inner)}." if inner else ""
    raise TypeError(
        "`module` must be a torch.nn RNN, GRU, LSTM or a cell of these; got "
        f"{type(module).__name__}.{hint}"
    )


def _torch_arrays(module: Any) -> dict[str, Any]:
    """Weights by name, read as attributes: these are what a parametrisation makes of them."""
    ends = [""]
    if hasattr(module, "num_layers"):
        ways = ("", "_reverse") if module.bidirectional else ("",)
        ends = [f"_l{k}{way}" for k in range(module.num_layers) for way in ways]
    names = [own + end for end in ends for own in _ARRAYS]
    found = {name: getattr(module, name, None) for name in names}
    return {name: array for name, array in found.items() if array is not None}


def from_jax(step: Callable[[Any, Any], Any], h: Any, x: Any) -> JacobianChain:
    """Chain of the step Jacobians of a JAX function along its orbit.

    Parameters
    ----------
    step : callable (h, x_t) -> h'
        Pure and differentiable. The state may be an array or any tree of arrays, such as (h, c).
    h : array or tree of arrays
        State before the first step.
    x : array, shape (T, ...)
        Inputs x_1 .. x_T, handed to `step` one by one.

    Returns
    -------
    JacobianChain
        Of the state's leaves, ravelled and joined in JAX's order.

    Raises
    ------
    ValueError
        No steps; a state that changes its size; derivatives that are not finite or not each other's
        transposes.
    ImportError
        jax is not installed.

    Notes
    -----
    The orbit (T + 1 states) is kept. Derivatives are exact in the precision of the state: float32
    unless jax_enable_x64 is set, so that log norms carry errors of about 1e-7 a step. A Jacobian
    costs n forward passes.

    Examples
    --------
    ::

        def step(h, x):
            return jnp.tanh(W @ h + x)

        gp.horizon(gp.from_jax(step, jnp.zeros(64), x))
    """
    try:
        import jax
        from jax.flatten_util import ravel_pytree
    except ImportError:
        raise ImportError("from_jax needs jax: pip install 'gradprop[jax]'.") from None
    inputs = _inputs(x)
    start, unravel = ravel_pytree(h)

    def flat_step(state: Any, x_t: Any) -> Any:
        return ravel_pytree(step(unravel(state), x_t))[0]

    @jax.jit
    def push(state: Any, x_t: Any, V: Any) -> Any:
        def column(v: Any) -> Any:
            return jax.jvp(lambda s: flat_step(s, x_t), (state,), (v,))[1]

        return jax.vmap(column, 1, 1)(V)

    @jax.jit
    def pull(state: Any, x_t: Any, U: Any) -> Any:
        back = jax.vjp(lambda s: flat_step(s, x_t), state)[1]
        return jax.vmap(lambda u: back(u)[0], 1, 1)(U)

    states = _orbit(jax.jit(flat_step), start, inputs)

    def product(act: Any) -> Callable[[int, Float], Float]:
        def of_step(k: int, V: Float) -> Float:
            return np.asarray(act(states[k - 1], inputs[k - 1], V.astype(start.dtype)))

        return of_step

    return JacobianChain.from_products(product(push), product(pull), start.size, len(inputs))


def from_torch_step(step: Callable[[Any, Any], Any], h: Any, x: Any) -> JacobianChain:
    """Chain of the step Jacobians of a PyTorch function along its orbit.

    Parameters
    ----------
    step : callable (h, x_t) -> h'
        Differentiable and deterministic; a module in eval mode, say. The state is a tensor or a
        tuple of tensors, such as (h, c).
    h : tensor or tuple of tensors
        State before the first step.
    x : tensor, shape (T, ...)
        Inputs x_1 .. x_T, handed to `step` one by one.

    Returns
    -------
    JacobianChain
        Of the state's tensors, ravelled and joined.

    Raises
    ------
    ValueError
        No steps; a state that changes its size; derivatives that are not finite.
    ImportError
        torch is not installed.

    Notes
    -----
    The orbit (T + 1 states) is kept. Derivatives are exact in the precision of the state. A
    Jacobian costs n backward passes, which work for every operation that can be trained.

    Examples
    --------
    ::

        cell = torch.nn.LSTMCell(3, 64)
        start = (torch.zeros(64), torch.zeros(64))
        gp.horizon(gp.from_torch_step(lambda s, x: cell(x, s), start, x))
    """
    try:
        import torch
    except ImportError:
        raise ImportError("from_torch_step needs torch: pip install 'gradprop[torch]'.") from None
    inputs = _inputs(x)
    tensors = h if isinstance(h, tuple) else (h,)
    sizes, shapes = [t.numel() for t in tensors], [t.shape for t in tensors]

    def join(parts: Any) -> Any:
        parts = parts if isinstance(parts, tuple | list) else (parts,)
        return torch.cat([part.reshape(-1) for part in parts])

    def flat_step(state: Any, x_t: Any) -> Any:
        parts = [p.reshape(s) for p, s in zip(state.split(sizes), shapes, strict=True)]
        return join(step(tuple(parts) if isinstance(h, tuple) else parts[0], x_t))

    derivative: Any = torch.autograd.functional.jacobian
    with torch.no_grad():
        states = _orbit(flat_step, join(tensors).detach(), inputs)

    @functools.lru_cache(maxsize=1)
    def jacobian(k: int) -> Float:
        J = derivative(lambda state: flat_step(state, inputs[k - 1]), states[k - 1])
        return np.asarray(J.detach().cpu().numpy(), dtype=np.float64)

    n = sum(sizes)
    return JacobianChain.from_products(
        lambda k, V: jacobian(k) @ V, lambda k, V: jacobian(k).T @ V, n, len(inputs)
    )


def _inputs(x: Any) -> Any:
    """Inputs with steps along the first axis, of which there is at least one."""
    shape = np.shape(x)
    if not shape or shape[0] == 0:
        raise ValueError(f"`x` must have shape (T, ...) with T at least 1; got shape {shape}.")
    return x


def _orbit(step: Callable[[Any, Any], Any], start: Any, inputs: Any) -> list[Any]:
    """States 0 .. T-1, flat; ValueError if a step changes the state's size."""
    states = [start]
    for k, x_t in enumerate(inputs, 1):
        after = step(states[-1], x_t)
        if after.shape != start.shape:
            raise ValueError(
                f"`step` must keep the size of the state: {start.shape[0]} numbers; got "
                f"{after.shape[0]} after step {k}."
            )
        states.append(after)
    return states[:-1]
