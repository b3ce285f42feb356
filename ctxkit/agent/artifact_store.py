"""Large tool results stored as files beside the session's log."""

# All of them are derived from the session's record. If one cannot be written, the session continues
# without it.

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, BinaryIO

from ctxkit._internal.formatting_and_sanitizing import format_error_line, sanitize_line
from ctxkit._internal.redaction import redact
from ctxkit.agent.tools.confined_root import RootFolder
from ctxkit.agent.tools.file_search import search_files
from ctxkit.errors import StoreError
from ctxkit.policies.result_excerpts_and_offload import (
    ARTIFACT_FOLDER,
    DEFAULT_ADVICE,
    get_artifact_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ctxkit.agent.ctxkit_folder_and_session_trust import Workspace


# Artifacts are tool results stored as files in the session's folder of the workspace. An agent is
# shown the path `.ctxkit/artifacts/ID.txt` for each, so a stub is the same in a live session and in
# its replay; the file tools read, list and search that path (`ExtraFiles`).
class ArtifactStore:
    """Stores tool results in the folder of a session, and opens them for the file tools.

    File names are derived from the content, so equal results share a file. Artifacts of the session
    that this one was branched from can be read, too.

    Args:
        workspace: folder in which the session is stored.
        sessions: returns the id of the session, and that of the one it was branched from.
        on_failure: called with the name of the tool and the reason, once for each result that could
            not be stored.
        on_stored: called with the name of the tool, its characters and the file, once for each
            result that is stored and was not before.
        advice: returns how parts of an artifact are read, with `{path}` (see
            `ResultOffload.advice`).

    Example:
        >>> import tempfile
        >>> from ctxkit.agent import ArtifactStore, Workspace
        >>> store = ArtifactStore(Workspace(tempfile.mkdtemp()), lambda: ["s1"])
        >>> store.list_files(".")
        []
    """

    def __init__(
        self,
        workspace: Workspace,
        sessions: Callable[[], Sequence[str]],
        *,
        on_failure: Callable[[str, str], None] = lambda _tool, _error: None,
        on_stored: Callable[[str, int, Path], None] = lambda _tool, _chars, _file: None,
        advice: Callable[[], str] = lambda: DEFAULT_ADVICE,
    ) -> None:
        self._workspace, self._sessions = workspace, sessions
        self._on_failure, self._on_stored, self._advice = on_failure, on_stored, advice
        self._failed: set[str] = set()

    # -- writing -----------------------------------------------------------------------------------

    def save(self, artifact: str, text: str, tool: str = "unknown", hint: str = "") -> None:
        """Store a text, redacted, under the artifact id that a stub of the pruning `offload` names.

        It is stored twice: as text, for the file tools, and as JSON with its origin, as fuseraft
        does (`ToolResultArtifactStore.cs`).

        Args:
            artifact: id of the artifact.
            text: its content.
            tool: tool whose result it is.
            hint: short description of the call.

        Raises:
            StoreError: it cannot be written.
        """
        self._store(artifact, redact(text), tool, redact(hint))

    def _store(self, artifact: str, clean: str, tool: str, hint: str = "") -> None:
        record = {
            "id": artifact,
            "tool": tool,
            "hint": hint,
            "chars": len(clean),
            "content": clean,
        }
        folder = self._folders()[0]
        file = folder / f"{artifact}.txt"
        is_new = not file.exists()
        try:
            self._workspace.write_file(folder, file.name, clean)
            record_text = json.dumps(record, indent=2, ensure_ascii=False)
            self._workspace.write_file(folder, f"{artifact}.json", record_text)
        except StoreError as e:
            if artifact not in self._failed:
                self._failed.add(artifact)
                self._on_failure(tool, format_error_line(e))
            raise
        if is_new:
            self._on_stored(tool, len(clean), file)

    def store_result(self, tool: str, text: str) -> str:
        """Store a result, redacted; return its stub, or the text itself if it cannot be stored.

        Args:
            tool: name of the tool.
            text: text of its result.
        """
        text = redact(text)
        digest = sha256(text.encode("utf-8", "replace")).hexdigest()
        try:
            self._store(digest[:12], text, tool)
        except StoreError:
            return text
        path = get_artifact_path(digest[:12])
        begins = text.lstrip().partition("\n")[0][:120]  # a tool says first what it left out
        return (
            f"[result offloaded: {len(text):,} characters of {tool} are in {path},"
            f" {text.count(chr(10)) + 1:,} lines]\nSHA256: {digest}\n"
            f"{self._advice().format(path=path)}\nIt begins: {begins}"
        )

    # -- reading, by the paths that an agent is shown ----------------------------------------------

    def contains(self, path: str) -> bool:
        """Return whether a path is one of artifacts, whether or not it exists."""
        return _split_artifact_path(path) is not None

    @contextmanager
    def open_file(self, path: str) -> Iterator[BinaryIO]:
        """Yield an artifact, open for reading.

        Args:
            path: path of the artifact as the agent sees it.

        Raises:
            StoreError: there is no such artifact.
        """
        name = _split_artifact_path(path)
        folder = self._find_folder(name) if name else None
        if not name or folder is None:
            raise StoreError(f"There is no artifact {sanitize_line(path, 200)!r}.")
        with (
            self._workspace.reach(folder) as here,
            os.fdopen(here.open(name, os.O_RDONLY), "rb") as file,
        ):
            yield file

    def list_files(self, path: str) -> list[str]:
        """Return the paths of the artifacts, or of one.

        Args:
            path: path of one artifact, or of their folder, as the agent sees it.
        """
        artifact, names = _split_artifact_path(path), list[str]()
        for folder in self._folders():
            if folder.is_dir():
                names += [p.name for p in sorted(folder.glob("*.txt")) if p.name not in names]
        return [f"{ARTIFACT_FOLDER}/{n}" for n in names if artifact in ("", n)]

    def search(self, pattern: str, path: str, files: str) -> str:
        """Return the hits of a regular expression in one artifact, or in all.

        Args:
            pattern: the regular expression.
            path: path of one artifact, or of their folder.
            files: glob that file names match.

        Raises:
            BadArguments: the pattern is no regular expression.
            StoreError: there is no such artifact.
        """
        name = _split_artifact_path(path)
        folder = self._find_folder(name) if name else self._folders()[0]
        if folder is None or not folder.is_dir():
            raise StoreError(f"There is no artifact {sanitize_line(path, 200)!r}.")
        hits = search_files(RootFolder(folder), pattern, name or ".", files if name else "*.txt")
        return "\n".join(
            f"{ARTIFACT_FOLDER}/{line}" if line.partition(":")[0].endswith(".txt") else line
            for line in hits.split("\n")
        )

    def _folders(self) -> list[Path]:
        return [self._workspace.results(session) for session in self._sessions()]

    def _find_folder(self, name: str) -> Path | None:
        return next((f for f in self._folders() if (f / name).is_file()), None)


def _split_artifact_path(path: str) -> str | None:
    """Return the file name in a path of an artifact, "" for their folder, None for another path."""
    clean = path.strip().removeprefix("./").rstrip("/")
    if clean == ARTIFACT_FOLDER:
        return ""
    folder, _, name = clean.rpartition("/")
    return name if folder == ARTIFACT_FOLDER and _ARTIFACT_FILE.fullmatch(name) else None


_ARTIFACT_FILE = re.compile(r"[0-9a-f]{12}\.txt")
