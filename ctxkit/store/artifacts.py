"""Large tool results kept as files inside the agent's root; what the model gets instead says where they are."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from ctxkit.errors import StoreError
from ctxkit.redaction import redact

if TYPE_CHECKING:
    from ctxkit.tools.root import Root

FOLDER = "artifacts"


class Artifacts:
    """Results under `artifacts/` of a root folder, named by their content, so that the file tools can read them.

    Args:
        root: the agent's root folder.
    """

    def __init__(self, root: Root) -> None:
        self._root = root

    def save(self, artifact: str, text: str) -> None:
        """Keep a text, without keys, under the name that a stub of the pruning `offload` gives.

        Raises:
            StoreError: the place leads out of the root folder.
            OSError: it cannot be written.
        """
        self._root.write(
            f"{FOLDER}/{artifact}.txt", redact(text).encode("utf-8", "replace"), private=True
        )

    def keep(self, tool: str, text: str) -> str:
        """Keep a result, without keys, and return the stub for the model; where it cannot be kept, the text itself."""
        text = redact(text)
        name = f"{FOLDER}/{sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}.txt"
        try:
            self._root.write(name, text.encode("utf-8", "replace"), private=True)
        except (StoreError, OSError):
            return text
        begins = text.lstrip().partition("\n")[0][:120]  # a tool says first what it left out
        return (
            f"[result offloaded: {len(text):,} characters of {tool} are in {name}, {text.count(chr(10)) + 1:,} lines]\n"
            f"Use read_file with path={name!r}, start and end, or search with path={name!r}, "
            "for the parts you need.\n"
            f"It begins: {begins}"
        )
