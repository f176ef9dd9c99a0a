"""Settings and stored reference values that all tests share."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from helpers import FLIPFLOP, ORACLES
from hypothesis import HealthCheck, settings

# A first call compiles for seconds, which a deadline would report as a flaky test.
settings.register_profile(
    "gradprop",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("gradprop")


def _arrays(path: Any) -> MappingProxyType[str, np.ndarray]:
    """Read an npz file as a mapping of read-only arrays."""
    with np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    for array in arrays.values():
        array.flags.writeable = False
    return MappingProxyType(arrays)


@pytest.fixture(scope="session")
def oracles() -> dict[str, Any]:
    """Exact and high-precision reference values (tests/oracles/PROVENANCE.md)."""
    return json.loads((ORACLES / "oracles.json").read_text())


@pytest.fixture(scope="session")
def oracle_products() -> MappingProxyType[str, np.ndarray]:
    """Factors of the products whose singular values are in ``oracles["products"]["cases"]``."""
    return _arrays(ORACLES / "oracles_products.npz")


@pytest.fixture(scope="session")
def bounds_cases() -> tuple[dict[str, Any], MappingProxyType[str, np.ndarray]]:
    """Six 64-unit networks with true rates: (values by name, arrays W_NAME and dphi_NAME)."""
    values = json.loads((ORACLES / "bounds_cases.json").read_text())
    return values, _arrays(ORACLES / "bounds_cases.npz")


@pytest.fixture(scope="session")
def flipflop() -> tuple[dict[str, Any], MappingProxyType[str, np.ndarray]]:
    """A trained 8-unit network: (conventions and reference values, arrays)."""
    return json.loads(FLIPFLOP.with_suffix(".json").read_text()), _arrays(FLIPFLOP)
