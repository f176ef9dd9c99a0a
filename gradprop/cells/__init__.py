"""Frozen descriptions of recurrent cells: weights and activations, no behaviour of their own."""
