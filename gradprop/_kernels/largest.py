"""Largest singular value of each matrix of a stack: found by Lanczos, then proved.

Everything is for A (n, p) with n <= p, G = A A^T and entries of order one. The vector y may come
from anywhere; what is returned rests on a proof that holds for any unit y. With x = A^T y,
theta = |x|^2, r = |A x - theta y| and H the restriction of G to the complement of y,

    G = [theta, r w^T; r w, H] in an orthonormal basis that starts with y, so that
    theta <= sigma_max^2 <= theta + e,   e (e + theta - h) = r^2,   for any h >= lambda_max(H)

(C.-K. Li, R.-C. Li, Linear Algebra Appl. 395 (2005) 183: the same e). Three values serve as h, the
cheapest first: |A|_F^2 - theta, since H is positive semidefinite; sqrt(|G|_F^2 - theta^2); and an h
for which h - H is seen to be positive definite from the signs of its pivots (Sylvester's law of
inertia). If none proves e <= SLACK n eps theta, no value is given.
Nothing depends on luck with the start vector: a bad one costs the proof, never the value.
"""

import math

import numpy as np

from gradprop._kernels.jit import FALSE, jit

EPS = 2.0**-52

SLACK = 4.0
"""Proved relative error of sigma^2, in units of n eps. A quarter of it is left to the rounding of
the pivots: on twelve kinds of matrices with a repeated largest value (n = 12 to 512) their signs
told h from lambda_max(H) to within 0.44 units."""

RANGE = 2.0**400
"""|A|_F^2 within RANGE and 1/RANGE: then neither |G|_F^2 nor the square of a residual at the level
of rounding over- or underflows."""

PANEL = 32
"""Rows eliminated together; timed for n = 16 to 512, flat between 16 and 64."""


@jit
def start_vector(v):
    """Fill v (n,) with a fixed pseudo-random unit vector, entries uniform before scaling."""
    state = 12345
    for i in range(len(v)):
        state = (1103515245 * state + 12345) % 2147483648
        v[i] = state / 1073741824.0 - 1.0
    _normalise(v)


@jit
def _normalise(v):
    length = math.sqrt(np.dot(v, v))
    for i in range(len(v)):
        v[i] /= length


@jit
def excess(theta, r, h):
    """Positive root e of e (e + theta - h) = r^2."""
    gap = theta - h
    root = math.sqrt(gap * gap + 4.0 * r * r)
    return 2.0 * r * r / (root + gap) if gap > 0.0 else 0.5 * (root - gap)


@jit
def _step(A, G, dense, V, k, alpha, beta, x, w):
    """Lanczos step k: G V_k = beta_{k-1} V_{k-1} + alpha_k V_k + beta_k V_{k+1}. 2 or 4 n^2 flops.

    Not reorthogonalised: the top Ritz pair suffers only once it has converged (C. C. Paige, Linear
    Algebra Appl. 34 (1980) 235), and the proof does not ask where y came from.
    """
    v = V[k]
    if dense:
        np.dot(G, v, w)
    else:
        np.dot(A.T, v, x)
        np.dot(A, x, w)
    a = np.dot(v, w)
    if k == 0:
        for i in range(len(w)):
            w[i] -= a * v[i]
    else:
        b, previous = beta[k - 1], V[k - 1]
        for i in range(len(w)):
            w[i] -= a * v[i] + b * previous[i]
    alpha[k], beta[k] = a, math.sqrt(np.dot(w, w))
    inverse = 1.0 / beta[k] if beta[k] > 0.0 else 0.0
    for i in range(len(w)):
        V[k + 1, i] = w[i] * inverse


@jit
def _logarithmic_derivatives(alpha, beta, k, x):
    """(whether x is above all eigenvalues of T_k, sum 1/(x - mu_i), sum 1/(x - mu_i)^2)."""
    d, d1, d2 = x - alpha[0], 1.0, 0.0
    if not d > 0.0:
        return False, 0.0, 0.0
    first, second = 1.0 / d, 1.0 / (d * d)
    for i in range(1, k):
        # pivots of x - T and their first two derivatives in x
        inverse = 1.0 / d
        square = beta[i - 1] * beta[i - 1]
        share = square * inverse * inverse
        d2 = share * (d2 - 2.0 * d1 * d1 * inverse)
        d1 = 1.0 + share * d1
        d = x - alpha[i] - square * inverse
        if not d > 0.0:
            return False, 0.0, 0.0
        slope = d1 / d
        first += slope
        second += slope * slope - d2 / d
    return True, first, second


@jit
def top_ritz_value(alpha, beta, k, guess):
    """Largest eigenvalue of the tridiagonal T_k by Laguerre's method, from above.

    Monotone and cubic (B. N. Parlett, Math. Comp. 18 (1964) 464). Starts from `guess` if that is
    above all eigenvalues, else from Gershgorin's bound.
    """
    bound = 0.0
    for i in range(k):
        before = beta[i - 1] if i > 0 else 0.0
        after = beta[i] if i < k - 1 else 0.0
        bound = max(bound, alpha[i] + before + after)
    x = min(guess, bound)
    above, first, second = _logarithmic_derivatives(alpha, beta, k, x)
    if not above:
        x = bound
        above, first, second = _logarithmic_derivatives(alpha, beta, k, x)
    for _ in range(60):
        if not above:
            break
        root = math.sqrt(max((k - 1) * (k * second - first * first), 0.0))
        step = k / (first + root)
        x -= step
        if step <= 4.0 * EPS * x:
            break
        above, first, second = _logarithmic_derivatives(alpha, beta, k, x)
    return x


@jit
def _ritz_vector(alpha, beta, k, theta, s):
    """s[:k] = eigenvector of T_k at its largest eigenvalue theta; returns |its last entry| / |s|.

    From the pivots of theta - T from the bottom: stable, as the vector is largest at the top.
    """
    s[k - 1] = theta - alpha[k - 1]
    for i in range(k - 2, 0, -1):
        s[i] = theta - alpha[i] - beta[i] * beta[i] / s[i + 1]
    s[0] = 1.0
    square = 1.0
    for i in range(1, k):
        s[i] = beta[i - 1] * s[i - 1] / s[i]
        square += s[i] * s[i]
    return abs(s[k - 1]) / math.sqrt(square)


@jit
def _number_above(alpha, beta, k, x):
    """How many eigenvalues of T_k exceed x (Sturm)."""
    d = x - alpha[0]
    count = 1 if d < 0.0 else 0
    for i in range(1, k):
        if d == 0.0:
            d = 1e-300
        d = x - alpha[i] - beta[i - 1] * beta[i - 1] / d
        count += 1 if d < 0.0 else 0
    return count


@jit
def _gram(A, G):
    """G = A A^T; returns |G|_F. 2 n^2 p flops, towards half of it for large n."""
    n = len(A)
    if n <= 2 * PANEL:
        np.dot(A, A.T, G)
    else:
        for i in range(0, n, 2 * PANEL):
            stop = min(i + 2 * PANEL, n)
            rows = np.dot(A[i:stop], A[i:].T)
            for a in range(stop - i):
                for b in range(n - i):
                    G[i + a, i + b] = rows[a, b]
                    G[i + b, i + a] = rows[a, b]
    flat = G.reshape(n * n)
    return math.sqrt(np.dot(flat, flat))


@jit
def _eliminate_rows(M, first, stop):
    """Gaussian elimination of rows first..stop of symmetric M, upper half; False at a pivot <= 0.

    By fours, which saves loads. Columns start at a multiple of eight for whole vectors: entries
    below the diagonal are scratch.
    """
    n = len(M)
    for j in range(first, stop, 4):
        four = min(4, stop - j)
        for a in range(j, j + four):
            if not M[a, a] > 0.0:
                return False
            inverse = 1.0 / M[a, a]
            for b in range(a + 1, j + four):
                f = M[a, b] * inverse
                for k in range(j, n):
                    M[b, k] -= f * M[a, k]
        if four < 4:
            break
        i0, i1 = 1.0 / M[j, j], 1.0 / M[j + 1, j + 1]
        i2, i3 = 1.0 / M[j + 2, j + 2], 1.0 / M[j + 3, j + 3]
        for i in range(j + 4, stop):
            f0, f1, f2, f3 = M[j, i] * i0, M[j + 1, i] * i1, M[j + 2, i] * i2, M[j + 3, i] * i3
            for k in range(i - i % 8, n):
                M[i, k] -= (f0 * M[j, k] + f1 * M[j + 1, k]) + (f2 * M[j + 2, k] + f3 * M[j + 3, k])
    return True


@jit
def is_positive_definite(M):
    """Whether all pivots of symmetric M are positive; M is overwritten. n^3 / 3 flops.

    Then M + E is definite for an E of the size of rounding, whatever M was (S. M. Rump, BIT 46
    (2006) 433).
    """
    n = len(M)
    for first in range(0, n, PANEL):
        stop = min(first + PANEL, n)
        if not _eliminate_rows(M, first, stop):
            return False
        rest = n - stop
        rows, scaled = np.empty((rest, stop - first)), np.empty((rest, stop - first))
        for j in range(first, stop):
            inverse = 1.0 / M[j, j]
            for i in range(rest):
                rows[i, j - first] = M[j, stop + i]
                scaled[i, j - first] = M[j, stop + i] * inverse
        for i in range(0, rest, 2 * PANEL):
            update = np.dot(scaled[i : i + 2 * PANEL], rows[i:].T)
            for a in range(len(update)):
                for b in range(a - a % 8, rest - i):
                    M[stop + i + a, stop + i + b] -= update[a, b]
    return True


@jit
def _proved(A, G, M, dense, mass, y, x, z):
    """|A^T y| if it is proved to be the largest singular value, else nan; y is normalised.

    `mass` is |A|_F^2, or |G|_F where `dense`.
    """
    slack = SLACK * len(y) * EPS
    _normalise(y)
    np.dot(A.T, y, x)
    np.dot(A, x, z)
    theta = np.dot(x, x)
    square = 0.0
    for i in range(len(y)):
        square += (z[i] - theta * y[i]) ** 2
    r = math.sqrt(square)
    if excess(theta, r, _rest(theta, mass, dense)) <= slack * theta:
        return math.sqrt(theta)
    if dense:
        # the largest h that would do, less a quarter of the slack for rounding
        mu = theta + 0.75 * slack * theta - r * r / (slack * theta)
        # M = mu - (1 - y y^T) G (1 - y y^T)
        for i in range(len(y)):
            yi, di = y[i], z[i] - theta * y[i]
            for j in range(len(y)):
                M[i, j] = (yi * z[j] + di * y[j]) - G[i, j]
            M[i, i] += mu
        if mu > 0.0 and is_positive_definite(M):
            return math.sqrt(theta)
    return np.nan


@jit
def _rest(theta, mass, dense):
    """Bound on lambda_max(H) from |A|_F^2, or from |G|_F if `dense`."""
    if not dense:
        return mass - theta
    return math.sqrt(max((mass - theta) * (mass + theta), 0.0))


@jit
def _is_worth_a_proof(alpha, beta, k, theta, r, slack, tried):
    """Whether the largest h that would do lies well above the second Ritz value, by T_k."""
    drop = r * r / (slack * theta) - 0.75 * slack * theta
    if drop <= 0.0:
        return True
    if tried or 4.0 * drop >= theta:
        return False
    return _number_above(alpha, beta, k, theta - 4.0 * drop) <= 1


@jit
def _largest(A, V, G, M):
    """Largest singular value of A (n, p), n <= p, or nan if it could not be proved."""
    n, p = A.shape
    slack = SLACK * n * EPS
    flat = A.reshape(n * p)
    frobenius = np.dot(flat, flat)
    if not 1.0 / RANGE <= frobenius <= RANGE:
        for entry in flat:
            if entry != 0.0:
                return np.nan
        return 0.0
    alpha, beta, s = np.empty(len(V)), np.empty(len(V)), np.empty(len(V))
    x, y, z = np.empty(p), np.empty(n), np.empty(n)
    mass, dense, tried, check = frobenius, FALSE, FALSE, 2
    theta = r = 0.0
    for k in range(1, len(V)):
        _step(A, G, dense, V, k - 1, alpha, beta, x, z)
        ended = beta[k - 1] <= EPS * frobenius
        if k < check and not ended:
            continue
        theta = top_ritz_value(alpha, beta, k, theta + 2.0 * r if r > 0.0 else np.inf)
        r = beta[k - 1] * _ritz_vector(alpha, beta, k, theta, s)
        check = k + (max(4, k // 8) if dense else 2)
        ready = excess(theta, r, _rest(theta, mass, dense)) <= 0.5 * slack * theta
        # a share below one half cannot be proved from |A|_F, so that G has to be formed
        if not dense and not ready and (ended or k >= 16 or (k >= 4 and theta < 0.5 * mass)):
            mass, dense = _gram(A, G), True
        if dense and not ready:
            ready = _is_worth_a_proof(alpha, beta, k, theta, r, slack, tried)
        if ready:
            np.dot(V[:k].T, s[:k], y)
            sigma = _proved(A, G, M, dense, mass, y, x, z)
            if not math.isnan(sigma) or (dense and tried):
                return sigma
            tried = dense
            if not dense:
                mass, dense = _gram(A, G), True
        if ended:
            break
    return np.nan


@jit
def largest_by_lanczos(A, sigma):
    """sigma[i] = largest singular value of A[i], for A (R, n, p) with n <= p, nan if not proved.

    Each matrix by itself, so that the bits do not depend on the stack. 4 n p flops a step, and
    n^2 p + n^3 / 3 unless one singular value dominates.
    """
    R, n, _ = A.shape
    V = np.empty((2 * n + 1, n))
    G, M = np.empty((n, n)), np.empty((n, n))
    start_vector(V[0])
    for i in range(R):
        sigma[i] = _largest(A[i], V, G, M)
