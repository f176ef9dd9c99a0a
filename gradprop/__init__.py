"""gradprop: numerical analysis of gradient propagation in recurrent maps."""

import importlib
import sys
import types
from typing import Any

__version__ = "0.1.0"

_MODULES = {
    "activations": ("Activation",),
    "bounds": ("Bounds", "NormBounds", "norm_bounds"),
    "cells.composite": ("Bidirectional", "Stacked"),
    "cells.counts": ("ParameterCount", "parameter_count"),
    "cells.custom": ("CustomCell",),
    "cells.gru": ("GRU",),
    "cells.lstm": ("LSTM",),
    "cells.rnn": ("RNN",),
    "certificates": ("GrowthCertificate", "growth_certificate"),
    "chain": ("JacobianChain",),
    "cluster": ("dask_executor",),
    "critical": ("CriticalLine", "critical_line"),
    "diagnosis.result": ("Diagnosis",),
    "diagnosis.run": ("diagnose",),
    "edge": ("EdgeOfChaos", "edge_of_chaos"),
    "figures": ("plot",),
    "gates": ("GateRates", "gate_rates"),
    "gaussian_products": ("NewmanExponents", "ProductEdge", "newman_exponents", "product_edge"),
    "gradients.clipping": ("clip_by_global_norm", "clip_by_value", "global_norm"),
    "gradients.credit": ("CreditMatrix", "credit_matrix"),
    "gradients.lags": ("LagDecomposition", "lag_decomposition"),
    "gradients.losses": ("Loss", "cross_entropy", "mean_squared_error"),
    "gradients.masks": ("length_mask",),
    "gradients.sensitivity": ("ParameterSensitivity", "parameter_sensitivity"),
    "gradients.thresholds": ("ClipStatistics", "clip_statistics"),
    "gradients.truncation": ("TruncationBias", "truncation_bias"),
    "gradients.backward": ("Gradients", "backward"),
    "horizon": ("Horizon", "horizon"),
    "initialisation": ("initialise",),
    "linearise": ("linearise", "step_jacobian"),
    "lyapunov.covariant": ("CovariantVectors", "covariant_vectors"),
    "lyapunov.dimensions": ("KaplanYorke", "PositiveSum", "kaplan_yorke", "positive_sum"),
    "lyapunov.local": ("LocalExponents", "local_exponents"),
    "lyapunov.ranks": ("EffectiveRank", "effective_rank"),
    "lyapunov.spectrum": ("Exponents", "LyapunovSpectrum", "lyapunov_spectrum"),
    "measure": ("measure",),
    "norms": ("LogNorms", "Norms", "log_norms"),
    "moments": ("GrowthMoments", "growth_moments"),
    "pooling": ("Pooled", "pool"),
    "precision.absorption": ("Absorption", "absorption"),
    "precision.events": ("Events", "precision_events"),
    "precision.forecast": ("PrecisionForecast", "precision_forecast"),
    "precision.formats": ("Format",),
    "precision.lags": ("ExactEvents", "PrecisionEvents"),
    "precision.loss_scale": ("LossScaleWindow", "loss_scale_window"),
    "precision.orbit": ("OrbitError", "orbit_error"),
    "precision.plain": ("PlainSingularValues", "PlainSpectrum", "plain_singular_values"),
    "precision.products": ("ProductError", "product_error"),
    "precision.quantise": ("DecayCeiling", "decay_ceiling", "quantised"),
    "precision.ranks": ("TrustworthyRank", "trustworthy_rank"),
    "precision.updates": ("UpdateAbsorption", "update_absorption"),
    "pullback": ("Pullback", "VectorNorms", "gradient_by_lag", "jvp", "vjp"),
    "random_spectrum": ("RandomNetworkSpectrum", "random_network_spectrum"),
    "results": ("ScaledArray", "Status"),
    "rollout": ("Trajectory", "TwoWayTrajectory", "rollout"),
    "singular": ("SingularValues", "Spectrum", "singular_values"),
    "spectral": ("rescale", "spectral_norm", "spectral_radius"),
    "transients": ("TransientGrowth", "transient_growth"),
    "theory": ("MeanField", "mean_field"),
    "weights.conventions": ("cell_from_arrays",),
    "weights.files": ("CellList", "list_cells", "load_cell"),
    "weights.frameworks": ("from_jax", "from_torch", "from_torch_step"),
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
