"""Worker script that extracts a document's text; it imports nothing of ctxkit."""

from __future__ import annotations

import io
import json
import sys
import warnings
import zipfile
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Pieces = Iterator[tuple[str, Callable[[], str]]]
    """Names of pieces, each with a function that returns its text, called only if requested."""


_MAX_NAME_CHARS = 200
"""Characters of a piece's name; Excel allows 31, a malicious file may have millions."""
_MAX_BLANK_ROWS = 3
"""Consecutive empty rows that are written as they are; more are counted."""


class RefusedDocument(Exception):
    """A document that is not read; the text is the reason, for the user."""


# The document is untrusted, and its parsers are large. So this process gets no secrets, limits its
# own memory and time and forbids itself to write files before it reads a byte, and bounds every
# text that it returns. It writes each piece as soon as it is read, so that the parent has what came
# before a limit killed it.


def main() -> None:
    """Read the request, a JSON object in the one argument; write the pieces as lines of JSON."""
    request = json.loads(sys.argv[1])
    warnings.simplefilter("ignore")
    _limit_resources(request)
    try:
        data = sys.stdin.buffer.read(request["file_bytes"] + 1)
        for line in read_pieces(data, request):
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
    except RefusedDocument as e:
        _report_error(str(e))
    except MemoryError:
        _report_error("it needs more memory than a document may take")
    except RecursionError:
        _report_error("it is nested too deep")
    except Exception as e:  # noqa: BLE001  a library may raise anything on a damaged file
        kind, why = request["kind"], f"{type(e).__name__}: {str(e)[:200]}"
        _report_error(f"it is damaged, too large, or no {kind} ({why})")


def read_pieces(data: bytes, request: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the pieces of a document, and a note if not all was read.

    Args:
        data: the whole file.
        request: kind, names of the pieces wanted, and limits (`DocumentReadLimits`, by field).

    Yields:
        `name` and `text` of each piece; last, where limits were reached, a `note`.

    Raises:
        RefusedDocument: the file is too large, its archive unpacks to too much, or it asks for a
            password.
    """
    if len(data) > request["file_bytes"]:
        raise RefusedDocument(f"it is larger than {request['file_bytes']:,} bytes")
    kind, piece_names = request["kind"], request["wanted"]
    if kind != "pdf":
        _check_archive(data, request)
    left, pieces = request["chars"], READERS[kind](data, request)
    for full_name, get_text in islice(pieces, request["pieces"]):
        name = full_name[:_MAX_NAME_CHARS]
        if piece_names is not None and name not in piece_names:
            continue
        text = get_text()
        yield {"name": name, "text": text[:left].encode("utf-8", "replace").decode()}
        left -= len(text)
        if left < 0:
            yield {"note": f"the text ends after {request['chars']:,} characters"}
            return
    if next(pieces, None) is not None:
        yield {"note": f"only the first {request['pieces']:,} parts were read"}


def read_pdf(data: bytes, _: dict[str, Any]) -> Pieces:
    """Yield the pages of a PDF.

    Raises:
        RefusedDocument: it asks for a password.
    """
    import pypdf

    reader = pypdf.PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        raise RefusedDocument("it asks for a password")
    for n in range(len(reader.pages)):
        yield f"page {n + 1}", lambda n=n: reader.pages[n].extract_text()  # type: ignore[misc]


def read_docx(data: bytes, _: dict[str, Any]) -> Pieces:
    """Yield the body of a Word document, paragraphs and tables in their order."""
    from docx import Document

    document = Document(io.BytesIO(data))
    yield "text", lambda: "\n".join(_iter_blocks(document))


def _iter_blocks(container: Any) -> Iterator[str]:
    for block in container.iter_inner_content():
        if hasattr(block, "rows"):
            yield from ("\t".join(_iter_cells(row)) for row in block.rows)
        else:
            yield block.text


def _iter_cells(row: Any) -> Iterator[str]:
    """Yield the texts of a row's cells, merged cells once, with the tables in them."""
    before = None
    for cell in row.cells:
        if cell._tc is not before:  # noqa: SLF001  merged cells are one element
            yield " ".join(t for t in _iter_blocks(cell) if t)
        before = cell._tc  # noqa: SLF001  as above


def read_pptx(data: bytes, _: dict[str, Any]) -> Pieces:
    """Yield the slides of a presentation, each with its notes at the end."""
    from pptx import Presentation

    for n, slide in enumerate(Presentation(io.BytesIO(data)).slides, 1):
        yield f"slide {n}", lambda slide=slide: "\n".join(_iter_slide(slide))  # type: ignore[misc]


def _iter_slide(slide: Any) -> Iterator[str]:
    yield from _iter_shapes(slide.shapes)
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        yield f"Notes: {slide.notes_slide.notes_text_frame.text}"


def _iter_shapes(shapes: Any) -> Iterator[str]:
    for shape in shapes:
        if shape.has_text_frame:
            yield shape.text_frame.text
        elif getattr(shape, "has_table", False) and shape.has_table:
            yield from ("\t".join(c.text for c in row.cells) for row in shape.table.rows)
        elif hasattr(shape, "shapes"):  # a group
            yield from _iter_shapes(shape.shapes)


def read_xlsx(data: bytes, request: dict[str, Any]) -> Pieces:
    """Yield the sheets of a workbook, a line per row; formulas have their last value.

    Args:
        data: the whole file.
        request: its `cells` is the maximal number of cells of the workbook.
    """
    from openpyxl import load_workbook

    book = load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    cells = [request["cells"]]
    for sheet in book.worksheets:
        yield sheet.title, lambda sheet=sheet: _format_sheet(sheet, cells)  # type: ignore[misc]


def _format_sheet(sheet: Any, cells_left: list[int]) -> str:
    """Return a sheet as lines; `cells_left` counts down over all sheets."""
    out: list[str] = []
    blank = 0
    sheet.reset_dimensions()  # the size that the file declares may be wrong
    for row in sheet.iter_rows(values_only=True):
        cells_left[0] -= len(row)
        if cells_left[0] < 0:
            out.append("[the bound of cells was reached here: the rest was not read]")
            break
        line = "\t".join("" if v is None else str(v) for v in row).rstrip("\t")
        if not line:
            blank += 1
            continue
        out.extend([""] * blank if blank <= _MAX_BLANK_ROWS else [f"[{blank:,} empty rows]"])
        out.append(line)
        blank = 0
    return "\n".join(out)


READERS: dict[str, Any] = {"pdf": read_pdf, "docx": read_docx, "pptx": read_pptx, "xlsx": read_xlsx}


def _check_archive(data: bytes, request: dict[str, Any]) -> None:
    """Refuse an archive that declares too much; Python unpacks no more than is declared."""
    entries = zipfile.ZipFile(io.BytesIO(data)).infolist()
    size = sum(i.file_size for i in entries)
    if size > request["unpacked_bytes"] or len(entries) > request["entries"]:
        raise RefusedDocument(f"it would unpack to {size:,} bytes in {len(entries):,} files")


def _limit_resources(request: dict[str, Any]) -> None:
    """Limit the memory and time of this process, where the system can."""
    try:
        import resource
    except ImportError:  # Windows: only the parent's timeout ends it
        return
    seconds = int(request["seconds"]) + 1
    for what, most in ((resource.RLIMIT_AS, request["memory"]), (resource.RLIMIT_CPU, seconds),
                       (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):  # fmt: skip
        _, hard = resource.getrlimit(what)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (least, least))


def _report_error(why: str) -> None:
    sys.stdout.write(json.dumps({"error": why}) + "\n")


if __name__ == "__main__":
    main()
