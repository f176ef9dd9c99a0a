"""A cell made of one's own compiled step."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop.cells._derivatives import check_returns, probe, step_jacobians, takes_complex
from gradprop.cells.base import Cell

Float = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class CustomCell(Cell):
    r"""One's own recurrent map :math:`h_t = F(h_{t-1}, x_t)`, compiled by Numba.

    Parameters
    ----------
    step : function compiled by ``numba.njit``, (h, x) -> h'
        h and h' of shape (n,), x of shape (d_x,): (0,) where there is no input. No other arguments,
        no state kept between calls.
    n : int
        Units.
    jacobian : function compiled by ``numba.njit``, (h, x) -> array of shape (n, n), optional
        :math:`\partial h_t / \partial h_{t-1}` from the state *before* the step. None: by complex
        step if `step` compiles for complex h, else by central differences.

    Attributes
    ----------
    jacobian_kind : str
        "given", "complex step" or "differences".

    Raises
    ------
    TypeError
        `step` or `jacobian` is not compiled, or does not compile for float64 arrays (h, x), or
        returns no real array of 1 or 2 axes.
    ValueError
        When used: an array returned in the wrong size, or read outside; a `jacobian` that is not
        the derivative of `step` (the entry is named); differences not known to 1e-6 of the largest
        entry, as beside a kink or where the step is saturated.

    Notes
    -----
    On a float32 orbit the step gets float32 arrays (a float64 constant inside makes it compute in
    float64, rounded once at the end); Jacobians are always taken in float64.

    At every step the Jacobian is compared with a central difference of `step` along one fixed
    direction, at five evaluations: to 1e-6 of its largest entry and ten times the difference's own
    error. A given Jacobian that is refuted raises. A complex step that is not borne out (abs, conj
    and norm compile but are not analytic) gives way to differences for that step;
    :meth:`jacobian_error` tells. Differences have widths of 2^-17 max(1, abs(h)): they suit states
    of order one or more.

    Complex step costs n evaluations a step and is exact to rounding; for it, write
    ``np.empty_like(h)`` rather than ``np.empty(n)`` and ``W.astype(h.dtype) @ h`` rather than
    ``W @ h``. Differences cost 5 n, with an error near 1e-10 for entries and states of order one.

    References
    ----------
    .. [1] W. Squire, G. Trapp, Using complex variables to estimate derivatives of real functions,
       SIAM Rev. 40, 110 (1998).

    Examples
    --------
    The Henon map contracts areas by 0.3 a step: its exponents sum to ln 0.3.

    >>> import numba, numpy as np, gradprop as gp
    >>> henon = numba.njit(lambda h, x: np.array([1 - 1.4 * h[0] ** 2 + h[1], 0.3 * h[0]]))
    >>> cell = gp.CustomCell(henon, 2)
    >>> gp.step_jacobian(cell, [0.5, 0.0]).tolist()
    [[-1.4, 1.0], [0.3, 0.0]]
    >>> chain = gp.linearise(cell, n_steps=100, h0=[0.0, 0.0])
    >>> round(float(gp.lyapunov_spectrum(chain).exponents.sum()), 10)
    -1.2039728043
    """

    step: Callable[..., Any]
    units: int
    jacobian: Callable[..., Any] | None = None

    def __init__(
        self, step: Callable[..., Any], n: int, jacobian: Callable[..., Any] | None = None
    ) -> None:
        object.__setattr__(self, "units", _checks.integer("n", n, minimum=1))
        check_returns("step", step, 1)
        if jacobian is not None:
            check_returns("jacobian", jacobian, 2)
        object.__setattr__(self, "step", step)
        object.__setattr__(self, "jacobian", jacobian)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as it was made."""
        return CustomCell, (self.step, self.units, self.jacobian)

    @property
    def n(self) -> int:
        """Number of units."""
        return self.units

    @property
    def d_x(self) -> None:
        """None: any width goes, as far as the step is concerned."""
        return None

    @property
    def dtype(self) -> np.dtype[Any]:
        """float64."""
        return np.dtype(np.float64)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """No replicas of its own; inputs and starts may have them."""
        return ()

    @functools.cached_property
    def jacobian_kind(self) -> str:
        """How step Jacobians are found: "given", "complex step" or "differences"."""
        if self.jacobian is not None:
            return "given"
        return "complex step" if takes_complex(self.step) else "differences"

    def jacobian_error(self, h: ArrayLike, x: ArrayLike | None = None) -> Float:
        """Estimated error of each entry of the step Jacobian at a state.

        Parameters
        ----------
        h : array_like, shape (..., n)
            State before the step.
        x : array_like, shape (..., d_x), optional
            Input of the step. None: none.

        Returns
        -------
        float64 array, shape (..., n, n)
            0 where the Jacobian is given or from a complex step, and so exact to rounding; else
            what differences over two widths, and a kink between them, say about their error.

        Raises
        ------
        ValueError, TypeError
            Arrays that are not finite or do not broadcast; a `jacobian` that is not the derivative
            of `step`.

        Examples
        --------
        >>> import numba, numpy as np, gradprop as gp
        >>> tent = gp.CustomCell(numba.njit(lambda h, x: 1 - 2 * np.abs(h)), 1)
        >>> error = tent.jacobian_error([0.25])
        >>> bool(0 < error[0, 0] < 1e-9), tent.jacobian_error([0.0]).round(3).tolist()
        (True, [[2.0]])
        """
        states = _checks.real_array("h", h, shape=(self.n,))
        inputs = np.empty(0) if x is None else _checks.real_array("x", x, shape=("d_x",))
        shape = _checks.broadcast_shapes(h=states.shape[:-1], x=inputs.shape[:-1])
        flat = [
            np.ascontiguousarray(np.broadcast_to(a, (*shape, a.shape[-1]))).reshape(
                int(np.prod(shape, dtype=np.int64)), a.shape[-1]
            )
            for a in (states, inputs)
        ]
        probe(self, flat[0][0], flat[1][0])
        return step_jacobians(self, *flat)[1].reshape(*shape, self.n, self.n)
