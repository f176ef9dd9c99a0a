"""gradprop: numerical analysis of gradient propagation in recurrent maps."""

import importlib
import sys
import types
from typing import Any

__version__ = "0.1.0"

_MODULES = {
    "activations": ("Activation",),
    "bounds": ("Bounds", "NormBounds", "norm_bounds"),
    "cells": ("RNN",),
    "certificates": ("GrowthCertificate", "growth_certificate"),
    "chain": ("JacobianChain",),
    "critical": ("CriticalLine", "critical_line"),
    "edge": ("EdgeOfChaos", "edge_of_chaos"),
    "figures": ("plot",),
    "gates": ("GateRates", "gate_rates"),
    "gaussian_products": ("NewmanExponents", "ProductEdge", "newman_exponents", "product_edge"),
    "horizon": ("Horizon", "horizon"),
    "initialisation": ("initialise",),
    "linearise": ("linearise",),
    "lyapunov.covariant": ("CovariantVectors", "covariant_vectors"),
    "lyapunov.dimensions": ("KaplanYorke", "PositiveSum", "kaplan_yorke", "positive_sum"),
    "lyapunov.local": ("LocalExponents", "local_exponents"),
    "lyapunov.ranks": ("EffectiveRank", "effective_rank"),
    "lyapunov.spectrum": ("Exponents", "LyapunovSpectrum", "lyapunov_spectrum"),
    "measure": ("measure",),
    "norms": ("LogNorms", "Norms", "log_norms"),
    "moments": ("GrowthMoments", "growth_moments"),
    "pooling": ("Pooled", "pool"),
    "precision.events": ("Events", "precision_events"),
    "precision.formats": ("Format",),
    "precision.lags": ("ExactEvents", "PrecisionEvents"),
    "pullback": ("Pullback", "VectorNorms", "gradient_by_lag", "jvp", "vjp"),
    "random_spectrum": ("RandomNetworkSpectrum", "random_network_spectrum"),
    "results": ("ScaledArray", "Status"),
    "rollout": ("Trajectory", "rollout"),
    "singular": ("SingularValues", "Spectrum", "singular_values"),
    "spectral": ("rescale", "spectral_norm", "spectral_radius"),
    "transients": ("TransientGrowth", "transient_growth"),
    "theory": ("MeanField", "mean_field"),
    "store": ("Store",),
    "study": ("Study",),
    "sweep": ("Sweep",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that importing the package compiles nothing."""
    if name not in _HOME:
        raise AttributeError(f"module 'gradprop' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"gradprop.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


class _Facade(types.ModuleType):
    """Keeps a submodule from shadowing the function of the same name (rollout, measure)."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Facade
