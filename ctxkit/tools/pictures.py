"""Pictures as models take them: PNG, JPEG, GIF, WebP, known by their first bytes and bounded."""

from __future__ import annotations

import base64
import io
from typing import Any

from ctxkit.errors import BadArguments
from ctxkit.messages import Image

MOST_BYTES = 3_750_000
"""Bytes of a picture: in base64, 5 MB, which is what Anthropic's API takes of one."""
KINDS = "PNG, JPEG, GIF or WebP"
_BEGINNINGS = ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"),
               (b"GIF87a", "gif"), (b"GIF89a", "gif"))  # fmt: skip


def media_type(data: bytes) -> str | None:
    """Return what kind of picture some bytes are, or None."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    kind = next((kind for begin, kind in _BEGINNINGS if data.startswith(begin)), None)
    return f"image/{kind}" if kind else None


def picture(data: bytes, name: str = "this") -> Image:
    """Return bytes as a picture.

    Raises:
        BadArguments: they are none of the four kinds, or too many.
    """
    kind = media_type(data)
    if kind is None:
        raise BadArguments(f"{name} is no picture that a model takes: {KINDS}.")
    if len(data) > MOST_BYTES:
        raise BadArguments(
            f"{name} has {len(data):,} bytes; a picture may have {MOST_BYTES:,}: make it smaller."
        )
    return Image(kind, base64.b64encode(data).decode())


def as_picture(value: Any) -> Image | None:
    """Return what a value shows as a picture: bytes of one, a figure, a Pillow image; None:
    nothing.

    Raises:
        BadArguments: it is too large.
    """
    if isinstance(value, Image):
        return value
    if isinstance(value, (bytes, bytearray)):
        return picture(bytes(value)) if media_type(bytes(value[:12])) else None
    drawn = getattr(value, "_repr_png_", None)
    if callable(drawn) and not isinstance(value, type):
        data = drawn()
        return picture(data, type(value).__name__) if isinstance(data, bytes) else None
    if type(value).__module__.startswith("matplotlib.") and callable(
        getattr(value, "savefig", None)
    ):
        file = io.BytesIO()
        value.savefig(file, format="png")
        return picture(file.getvalue(), type(value).__name__)
    return None


def untaken(image: Image) -> str:
    """Return the words that stand for a picture that the model cannot be shown."""
    size = len(image.data) * 3 // 4 - image.data.count("=")
    return f"[a picture, {image.media_type}, {size:,} bytes: this model takes none]"
