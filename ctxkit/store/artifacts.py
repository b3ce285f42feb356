"""Large tool results as files below the agent's root; the model gets where they are."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING

from ctxkit.errors import StoreError
from ctxkit.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.tools.root import Root

FOLDER = "artifacts"


class Artifacts:
    """Results under `artifacts/` of a root folder, named by their content, so that the file tools
    can read them.

    Args:
        root: the agent's root folder.
        beside: keeps a file under a name, beside the root, where fuseraft looks for it; None:
            nothing does.
    """

    def __init__(self, root: Root, beside: Callable[[str, str], None] | None = None) -> None:
        self._root, self._beside = root, beside

    def save(self, artifact: str, text: str, tool: str = "unknown", hint: str = "") -> None:
        """Keep a text, without keys, under the name that a stub of the pruning `offload` gives.

        It is kept twice: as text, for the file tools, and with what it came from, as fuseraft
        stores it (`ToolResultArtifactStore.cs`).

        Raises:
            StoreError: the place leads out of the root folder.
            OSError: it cannot be written.
        """
        clean = redact(text)
        if self._beside is not None:
            told = {
                "id": artifact,
                "tool": tool,
                "hint": redact(hint),
                "chars": len(clean),
                "content": clean,
            }
            self._beside(f"{artifact}.json", json.dumps(told, indent=2, ensure_ascii=False))
        self._root.write(f"{FOLDER}/{artifact}.txt", clean.encode("utf-8", "replace"), private=True)

    def keep(self, tool: str, text: str) -> str:
        """Keep a result, without keys; return its stub, or the text if it cannot be kept."""
        text = redact(text)
        data = text.encode("utf-8", "replace")
        digest = sha256(data).hexdigest()
        name = f"{FOLDER}/{digest[:12]}.txt"
        try:
            self._root.write(name, data, private=True)
        except (StoreError, OSError):
            return text
        begins = text.lstrip().partition("\n")[0][:120]  # a tool says first what it left out
        return (
            f"[result offloaded: {len(text):,} characters of {tool} are in {name},"
            f" {text.count(chr(10)) + 1:,} lines]\nSHA256: {digest}\n"
            f"Use read_file with path={name!r}, start and end,"
            f" or search with path={name!r}, for the parts you need.\nIt begins: {begins}"
        )
