"""Documents made for tests, by the libraries that write them or by hand."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def pdf(path: Path, *pages: str, packed: bytes = b"") -> Path:
    """A PDF written by hand: one line of text a page; `packed` is the deflated content of each."""
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>",
               f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
               b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]  # fmt: skip
    for n, text in enumerate(pages):
        said = packed or f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET".encode()
        how = b" /Filter /FlateDecode" if packed else b""
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * n} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
        objects.append(b"<< /Length %d%b >>\nstream\n%b\nendstream" % (len(said), how, said))
    out, places = io.BytesIO(), []
    out.write(b"%PDF-1.4\n")
    for n, body in enumerate(objects, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%b\nendobj\n" % (n, body))
    at = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.writelines(b"%010d 00000 n \n" % p for p in places)
    out.write(
        b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, at)
    )
    path.write_bytes(out.getvalue())
    return path


def docx(path: Path) -> Path:
    from docx import Document

    made = Document()
    made.add_heading("Ledger rules", 1)
    made.add_paragraph("Amounts are minor units.")
    table = made.add_table(1, 2)
    table.rows[0].cells[0].text, table.rows[0].cells[1].text = "ISK", "exponent 0"
    merged = made.add_table(1, 3).rows[0].cells
    merged[0].merge(merged[1]).text = "wide"
    merged[2].add_table(1, 1).rows[0].cells[0].text = "inner"
    made.add_paragraph("The end.")
    made.save(str(path))
    return path


def pptx(path: Path) -> Path:
    from pptx import Presentation

    made = Presentation()
    for title in ("First", "Second"):
        slide = made.slides.add_slide(made.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = f"Body of {title}"
    made.slides[1].notes_slide.notes_text_frame.text = "Say it slowly."
    made.save(str(path))
    return path


def xlsx(path: Path, rows: int = 3) -> Path:
    from openpyxl import Workbook

    made = Workbook()
    made.active.title = "Rates"
    for n in range(rows):
        made.active.append([f"C{n}", n, None, 1.5])
    made.create_sheet("Notes 2026").append(["closed"])
    made.save(path)
    return path


def rewritten(source: Path, target: Path, name: str, body: bytes) -> Path:
    """A copy of an archive with one of its files replaced."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for each in old.infolist():
            new.writestr(each.filename, body if each.filename == name else old.read(each))
    return target
