"""How much a document may take: a file may be a bomb, or simply enormous."""

from __future__ import annotations

from typing import NamedTuple


class Bounds(NamedTuple):
    """Where reading a document ends."""

    file_bytes: int = 100_000_000
    """A larger file is refused."""
    unpacked_bytes: int = 400_000_000
    """The same for what an archive (docx, pptx, xlsx) says that it unpacks to."""
    entries: int = 20_000
    """Files in such an archive."""
    pieces: int = 2_000
    """Pages, slides or sheets that are read."""
    cells: int = 1_000_000
    """Cells of a workbook that are read, empty ones between others included."""
    chars: int = 10_000_000
    """Characters of text that are taken."""
    seconds: float = 60.0
    """By the clock; the process is ended then."""
    memory: int = 1_500_000_000
    """Bytes of address space of that process, where the system can hold it to them."""
