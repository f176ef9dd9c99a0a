"""Lyapunov exponents of chains, with intervals."""
