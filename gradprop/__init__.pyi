"""Static view of the lazy facade, for type checkers and editors (a test keeps it in step)."""

from gradprop.activations import Activation as Activation
from gradprop.bounds import Bounds as Bounds, NormBounds as NormBounds, norm_bounds as norm_bounds
from gradprop.cells import RNN as RNN
from gradprop.certificates import (
    GrowthCertificate as GrowthCertificate,
    growth_certificate as growth_certificate,
)
from gradprop.chain import JacobianChain as JacobianChain
from gradprop.critical import CriticalLine as CriticalLine, critical_line as critical_line
from gradprop.edge import EdgeOfChaos as EdgeOfChaos, edge_of_chaos as edge_of_chaos
from gradprop.figures import plot as plot
from gradprop.gates import GateRates as GateRates, gate_rates as gate_rates
from gradprop.gaussian_products import (
    NewmanExponents as NewmanExponents,
    ProductEdge as ProductEdge,
    newman_exponents as newman_exponents,
    product_edge as product_edge,
)
from gradprop.horizon import Horizon as Horizon, horizon as horizon
from gradprop.initialisation import initialise as initialise
from gradprop.linearise import linearise as linearise
from gradprop.lyapunov.covariant import (
    CovariantVectors as CovariantVectors,
    covariant_vectors as covariant_vectors,
)
from gradprop.lyapunov.dimensions import (
    KaplanYorke as KaplanYorke,
    PositiveSum as PositiveSum,
    kaplan_yorke as kaplan_yorke,
    positive_sum as positive_sum,
)
from gradprop.lyapunov.local import (
    LocalExponents as LocalExponents,
    local_exponents as local_exponents,
)
from gradprop.lyapunov.ranks import EffectiveRank as EffectiveRank, effective_rank as effective_rank
from gradprop.lyapunov.spectrum import (
    Exponents as Exponents,
    LyapunovSpectrum as LyapunovSpectrum,
    lyapunov_spectrum as lyapunov_spectrum,
)
from gradprop.measure import measure as measure
from gradprop.norms import LogNorms as LogNorms, Norms as Norms, log_norms as log_norms
from gradprop.pooling import Pooled as Pooled, growth_moments as growth_moments, pool as pool
from gradprop.precision.events import Events as Events, precision_events as precision_events
from gradprop.precision.formats import Format as Format
from gradprop.precision.lags import ExactEvents as ExactEvents, PrecisionEvents as PrecisionEvents
from gradprop.pullback import (
    Pullback as Pullback,
    VectorNorms as VectorNorms,
    gradient_by_lag as gradient_by_lag,
    jvp as jvp,
    vjp as vjp,
)
from gradprop.random_spectrum import (
    RandomNetworkSpectrum as RandomNetworkSpectrum,
    random_network_spectrum as random_network_spectrum,
)
from gradprop.results import ScaledArray as ScaledArray, Status as Status
from gradprop.rollout import Trajectory as Trajectory, rollout as rollout
from gradprop.singular import (
    SingularValues as SingularValues,
    Spectrum as Spectrum,
    singular_values as singular_values,
)
from gradprop.spectral import (
    rescale as rescale,
    spectral_norm as spectral_norm,
    spectral_radius as spectral_radius,
)
from gradprop.store import Store as Store
from gradprop.study import Study as Study
from gradprop.sweep import Sweep as Sweep
from gradprop.theory import MeanField as MeanField, mean_field as mean_field
from gradprop.transients import (
    TransientGrowth as TransientGrowth,
    transient_growth as transient_growth,
)

__version__: str
