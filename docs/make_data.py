"""Make the wheel's data files from an installed LiteLLM: prices with limits, and two vocabularies.

    python docs/make_data.py

Run it before a release: the price table is dated with the day on which it is made.
"""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from importlib import util
from pathlib import Path

from ctxkit.tokens import prices
from ctxkit.tokens.exact_counters import BUNDLED_VOCABULARIES

FOLDER = Path(__file__).parents[1] / "ctxkit" / "data"


def main() -> None:
    """Write the price table and the vocabularies."""
    prices_json = prices.read_installed_litellm_prices(datetime.now(UTC).strftime("%Y-%m-%d"))
    (FOLDER / "prices.json").write_bytes(prices_json)
    spec = util.find_spec("litellm")
    if spec is None or spec.origin is None:
        raise SystemExit("LiteLLM is not installed here.")
    folder = Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"
    for name, file in BUNDLED_VOCABULARIES.items():
        compressed = gzip.compress((folder / file).read_bytes(), 9, mtime=0)
        (FOLDER / f"{name}.tiktoken.gz").write_bytes(compressed)


if __name__ == "__main__":
    main()
