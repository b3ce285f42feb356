"""Data that comes with the wheel: prices with limits of models and two vocabularies, each with its
source.

`prices.json` is made of LiteLLM's table (MIT licence) by `docs/make_data.py`; it says of which
version and when. `*.tiktoken.gz` are OpenAI's vocabularies as tiktoken has them (MIT licence),
checked by the hashes that tiktoken has of them.
"""

from __future__ import annotations

from pathlib import Path

DATA_DIR = Path(__file__).parent
