"""Sweeps summed up, for those who have the sweep at hand."""

from ctxkit.metrics.cells import pairs, summary

__all__ = ["pairs", "summary"]
