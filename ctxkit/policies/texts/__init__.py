"""Texts that policies and summaries are made of."""
