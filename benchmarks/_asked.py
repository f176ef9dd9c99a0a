"""What is asked of each measurement; the only place where these numbers stand."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Aim:
    """A title for the table, what the figure counts, and the least (or most) asked, by n.

    n is 0 where there is no size. Sizes without a number are shown only.
    """

    title: str
    counts: str
    asked: Mapping[int, float] = dataclasses.field(default_factory=dict)
    at_least: bool = True


def _by(sizes: str, *numbers: float) -> dict[int, float]:
    return dict(zip(map(int, sizes.split()), numbers, strict=True))


_PRODUCTS = "16 32 64 128 256 512"
_GEMM = _by(_PRODUCTS[3:], 0.7, 0.95, 0.95, 0.95, 0.95)
_EVERY = "best framework, QR at every step"

AIMS: dict[str, Aim] = {
    "norms float32": Aim(
        "ln ‖P‖_F at every lag with its error, float32", "times the best framework",
        _by(_PRODUCTS, 2.1, 1.85, 1.4, 1.15, 1.2, 1.05),
    ),
    "norms float64": Aim(
        "the same, float64", "times the best framework",
        _by(_PRODUCTS, 1.3, 1.85, 1.35, 1.1, 1.15, 1.0),
    ),
    "gemm float32": Aim(
        "the same as 2 n³ flops a step, float32", "of the rate of sgemm at n = 2048", _GEMM
    ),
    "gemm float64": Aim(
        "the same as 2 n³ flops a step, float64", "of the rate of dgemm at n = 2048", _GEMM
    ),
    "probe": Aim("ln ‖P‖_F by 8 vectors", "times our exact", _by("64 128 256", 2.5, 8, 20)),
    "relu": Aim("ReLU, half active", "times our tanh", _by("64 128 256", 2, 2.5, 2.5)),
    "threads float32": Aim(
        "norms on two threads, float32, wall time", "times the best framework",
        _by("16 64 128 256", 3.5, 2.5, 1.8, 1.5),
    ),
    "threads float64": Aim("the same, float64", "times the best framework"),
    "spectrum": Aim(
        "all Lyapunov exponents, gains 0.6 to 2", f"times the {_EVERY}",
        _by("16 32 64 128 256", 7, 6, 4.5, 3.7, 2.3),
    ),
    "spectrum, gain 3": Aim("the same, gain 3", f"times the {_EVERY}"),
    "spectrum, gain 8": Aim("the same, gain 8", f"times the {_EVERY}"),
    "packaged": Aim(
        "all Lyapunov exponents, map included", "times the best package",
        _by("16 64 128 256", 11, 6, 5, 3.2),
    ),
    "backward": Aim(
        "gradients through time, float32, B = 32", "times torch.nn.RNN",
        _by("64 128 256", 3.5, 2.2, 1.6),
    ),
    "backward, jax": Aim("the same", "times jax"),
    "singular": Aim(
        "all singular values, one step", "products of two n × n matrices",
        _by("64 128 256", 14, 10, 9), at_least=False,
    ),
    "singular, every second step": Aim(
        "the same, factored every second step", "products of two n × n matrices",
        _by("64", 8), at_least=False,
    ),
    "first log_norms": Aim("first log_norms of a process, cache empty", "s", at_least=False),
    "first lyapunov_spectrum": Aim("first lyapunov_spectrum", "s", at_least=False),
    "first singular_values": Aim("first singular_values", "s", at_least=False),
    "first backward": Aim("first backward", "s", at_least=False),
    "import": Aim(
        "import gradprop, over numpy and numba", "s", _by("0", 0.2), at_least=False
    ),
    "study, quick, cold": Aim(
        "decay_vs_rho --quick, cache empty", "s", _by("0", 12), at_least=False
    ),
    "study, quick, warm": Aim(
        "decay_vs_rho --quick, again", "s", _by("0", 3), at_least=False
    ),
    "study": Aim("decay_vs_rho", "s", _by("0", 90), at_least=False),
}  # fmt: skip
"""Groups in the order of the table."""
