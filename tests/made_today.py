"""Small logs of the tools that keep them today, in the shapes of their source, for the suite of damage."""

from __future__ import annotations

import json
from pathlib import Path

GOLDEN = Path(__file__).parent / "readers" / "golden"
XML = (
    "I look.\n<read_file>\n<path>a.py</path>\n</read_file>",
    "[read_file for 'a.py'] Result:",
    "<environment_details>\n# Time\n</environment_details>",
)
CLINE = json.dumps(
    [
        {"role": "user", "content": "<task>look</task>", "ts": 1_772_359_201_000},
        {"role": "assistant", "content": [{"type": "text", "text": XML[0]}], "modelInfo": {"modelId": "m-1"}},
        {"role": "user", "content": [{"type": "text", "text": t} for t in (XML[1], "x = 1", XML[2])]},
        {"role": "assistant", "content": "Done.", "ts": 1_772_359_209_000},
    ]
).encode()
TODAY: dict[str, list[bytes]] = {
    "cline": [(GOLDEN / "cline" / "api_conversation_history.json").read_bytes(), CLINE],
}
"""Logs by the name of the reader that must know them."""
