"""Gradients of a loss: its value and gradient, and what clipping does to a gradient."""
