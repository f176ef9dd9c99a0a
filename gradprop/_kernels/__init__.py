"""Numba kernels: arrays in, arrays out; they never check, raise or print."""
