"""Static view of the lazy facade, for type checkers and editors (a test keeps it in step)."""

from gradprop.activations import Activation as Activation
from gradprop.bounds import Bounds as Bounds
from gradprop.bounds import NormBounds as NormBounds
from gradprop.bounds import norm_bounds as norm_bounds
from gradprop.cells import RNN as RNN
from gradprop.certificates import (
    GrowthCertificate as GrowthCertificate,
)
from gradprop.certificates import (
    growth_certificate as growth_certificate,
)
from gradprop.chain import JacobianChain as JacobianChain
from gradprop.figures import plot as plot
from gradprop.horizon import Horizon as Horizon
from gradprop.horizon import horizon as horizon
from gradprop.initialisation import initialise as initialise
from gradprop.linearise import linearise as linearise
from gradprop.lyapunov.spectrum import (
    Exponents as Exponents,
)
from gradprop.lyapunov.spectrum import (
    LyapunovSpectrum as LyapunovSpectrum,
)
from gradprop.lyapunov.spectrum import (
    lyapunov_spectrum as lyapunov_spectrum,
)
from gradprop.measure import measure as measure
from gradprop.norms import LogNorms as LogNorms
from gradprop.norms import Norms as Norms
from gradprop.norms import log_norms as log_norms
from gradprop.pooling import Pooled as Pooled
from gradprop.pooling import growth_moments as growth_moments
from gradprop.pooling import pool as pool
from gradprop.precision.events import Events as Events
from gradprop.precision.events import precision_events as precision_events
from gradprop.precision.formats import Format as Format
from gradprop.precision.lags import ExactEvents as ExactEvents
from gradprop.precision.lags import PrecisionEvents as PrecisionEvents
from gradprop.pullback import (
    Pullback as Pullback,
)
from gradprop.pullback import (
    VectorNorms as VectorNorms,
)
from gradprop.pullback import (
    gradient_by_lag as gradient_by_lag,
)
from gradprop.pullback import (
    jvp as jvp,
)
from gradprop.pullback import (
    vjp as vjp,
)
from gradprop.results import ScaledArray as ScaledArray
from gradprop.results import Status as Status
from gradprop.rollout import Trajectory as Trajectory
from gradprop.rollout import rollout as rollout
from gradprop.singular import (
    SingularValues as SingularValues,
)
from gradprop.singular import (
    Spectrum as Spectrum,
)
from gradprop.singular import (
    singular_values as singular_values,
)
from gradprop.spectral import (
    rescale as rescale,
)
from gradprop.spectral import (
    spectral_norm as spectral_norm,
)
from gradprop.spectral import (
    spectral_radius as spectral_radius,
)
from gradprop.store import Store as Store
from gradprop.study import Study as Study
from gradprop.sweep import Sweep as Sweep
from gradprop.theory import (
    MeanField as MeanField,
)
from gradprop.theory import (
    NewmanExponents as NewmanExponents,
)
from gradprop.theory import (
    mean_field as mean_field,
)
from gradprop.theory import (
    newman_exponents as newman_exponents,
)
from gradprop.transients import (
    TransientGrowth as TransientGrowth,
)
from gradprop.transients import (
    transient_growth as transient_growth,
)

__version__: str
