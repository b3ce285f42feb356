"""Data files of the wheel: prices and limits of models, rules of providers, two vocabularies.

`prices.json` is built from LiteLLM's table (MIT licence) by `docs/make_data.py` and has its version
and date. `provider_rules.json` is kept by hand: each row has its source and the day on which that
was read; `docs/providers.md` is made from it. `*.tiktoken.gz` are OpenAI's vocabularies as
published with tiktoken (MIT licence), checked by tiktoken's hashes.
"""

from __future__ import annotations

from pathlib import Path

DATA_DIR = Path(__file__).parent
"""The folder of the data files."""
