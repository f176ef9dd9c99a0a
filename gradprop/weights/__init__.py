"""Cells from weights: stored arrays, files of the frameworks, objects in memory."""
