"""Detect, check and convert images for models."""

from __future__ import annotations

import base64
import io
from typing import Any

from ctxkit.errors import BadArguments
from ctxkit.session.messages import Image

MAX_IMAGE_BYTES = 3_750_000
"""Bytes of an image; in base64 5 MB, the limit of Anthropic's API for one image."""
IMAGE_KINDS = "PNG, JPEG, GIF or WebP"
_SIGNATURES = ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"),
               (b"GIF87a", "gif"), (b"GIF89a", "gif"))  # fmt: skip


def detect_media_type(data: bytes) -> str | None:
    """Return the media type of an image by its first bytes, or None.

    Args:
        data: the first twelve bytes of a file, or more.

    Returns:
        `image/png`, `image/jpeg`, `image/gif` or `image/webp`.

    Example:
        >>> from ctxkit.agent.tools.images import detect_media_type
        >>> detect_media_type(b"GIF89a")
        'image/gif'
    """
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    kind = next((kind for begin, kind in _SIGNATURES if data.startswith(begin)), None)
    return f"image/{kind}" if kind else None


def image_from_bytes(data: bytes, name: str = "this") -> Image:
    """Make an image for a prompt from the bytes of its file.

    Args:
        data: a PNG, JPEG, GIF or WebP file of at most `MAX_IMAGE_BYTES`.
        name: name of the image in an error's sentence.

    Returns:
        The image, base64-encoded.

    Raises:
        BadArguments: they are none of the four kinds, or too many.

    Example:
        >>> from ctxkit.agent import image_from_bytes
        >>> image_from_bytes(bytes.fromhex("89504e470d0a1a0a") + bytes(8)).media_type
        'image/png'
    """
    kind = detect_media_type(data)
    if kind is None:
        raise BadArguments(f"{name} is no picture that a model takes: {IMAGE_KINDS}.")
    if len(data) > MAX_IMAGE_BYTES:
        raise BadArguments(
            f"{name} has {len(data):,} bytes; a picture may have {MAX_IMAGE_BYTES:,}: make it "
            "smaller."
        )
    return Image(kind, base64.b64encode(data).decode())


def image_from_value(value: Any) -> Image | None:
    """Return the image that a value shows (image bytes, a figure, a Pillow image), or None.

    Args:
        value: the value of a cell's last expression, or any other.

    Returns:
        A PNG of a figure; bytes of an image as they are; None for any other value.

    Raises:
        BadArguments: the image is too large.

    Example:
        >>> from ctxkit.agent.tools.images import image_from_value
        >>> image_from_value("a text") is None
        True
    """
    if isinstance(value, Image):
        return value
    if isinstance(value, (bytes, bytearray)):
        return image_from_bytes(bytes(value)) if detect_media_type(bytes(value[:12])) else None
    to_png = getattr(value, "_repr_png_", None)
    if callable(to_png) and not isinstance(value, type):
        data = to_png()
        return image_from_bytes(data, type(value).__name__) if isinstance(data, bytes) else None
    if type(value).__module__.startswith("matplotlib.") and callable(
        getattr(value, "savefig", None)
    ):
        file = io.BytesIO()
        value.savefig(file, format="png")
        return image_from_bytes(file.getvalue(), type(value).__name__)
    return None


def describe_omitted_image(image: Image) -> str:
    """Return the text that replaces an image for a model that takes none.

    Args:
        image: base64-encoded.

    Returns:
        A line with its type and size in bytes.
    """
    size = len(image.data) * 3 // 4 - image.data.count("=")
    return f"[a picture, {image.media_type}, {size:,} bytes: this model takes none]"
