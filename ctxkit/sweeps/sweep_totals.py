"""Sweeps summed up, for those who have the sweep at hand."""

from ctxkit.metrics.pooled import pairs, summary

__all__ = ["pairs", "summary"]
