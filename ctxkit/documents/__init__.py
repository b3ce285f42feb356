"""The text of documents (pdf, docx, pptx, xlsx), read in a process of its own that has bounds."""

from __future__ import annotations

from ctxkit.documents.bounds import Bounds
from ctxkit.documents.reading import KINDS, Document, DocumentPiece, document, is_document, kind_of
from ctxkit.faces import listed

__all__ = ["KINDS", "Bounds", "Document", "DocumentPiece", "document", "is_document", "kind_of"]
__dir__ = listed(__all__)
