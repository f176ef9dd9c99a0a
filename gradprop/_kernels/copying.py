"""Copies by loops.

For out[:] = A Numba compiles the message of a shape that does not fit, which takes seconds.
"""

from gradprop._kernels.jit import inlined


@inlined
def copy_row(row, out):
    """out (n,) = row."""
    for i in range(row.size):
        out[i] = row[i]


@inlined
def copy_matrix(A, out):
    """out (n, p) = A."""
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            out[i, j] = A[i, j]
