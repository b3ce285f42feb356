"""Pictures out of values and files, and what stands for them where a model takes none."""

from __future__ import annotations

import asyncio
import base64
import struct
import zlib

import pytest
from builders import tool_call

from ctxkit.agent import (
    MAX_IMAGE_BYTES,
    RootFolder,
    image_from_bytes,
    image_from_value,
    make_file_tools,
    make_python_tool,
    run_tool,
    tool,
)
from ctxkit.errors import BadArguments
from ctxkit.session import Attachment, Text


def png(width=2, height=2):
    """A whole PNG of one colour."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = b"".join(b"\0" + b"\xd0\x40\x20" * width for _ in range(height))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


PNG = png()


def ran(function, **more):
    made = function if hasattr(function, "schema") else tool(function)
    given = more.pop("given", {})
    return asyncio.run(run_tool(tool_call(made.name, **given), {made.name: made}, **more))


class Drawn:
    def _repr_png_(self):
        return PNG


@pytest.mark.parametrize(("data", "kind"), [(PNG, "png"), (b"\xff\xd8\xff\xe0..", "jpeg"), (b"GIF89a..", "gif"),
                                            (b"RIFF\0\0\0\0WEBPVP8 ", "webp")])  # fmt: skip
def test_a_picture_is_known_by_its_first_bytes(data, kind):
    assert image_from_bytes(data) == Attachment(f"image/{kind}", base64.b64encode(data).decode())


@pytest.mark.parametrize("data", [b"", b"%PDF-1.7", b"<svg/>", b"RIFF\0\0\0\0WAVE", b"\x89PN"])
def test_what_is_none_is_said(data):
    with pytest.raises(BadArguments, match=r"x\.bin is no picture that a model takes: PNG, JPEG"):
        image_from_bytes(data, "x.bin")
    assert image_from_value(data) is None


def test_a_picture_is_bounded():
    with pytest.raises(BadArguments, match="make it smaller"):
        image_from_bytes(PNG + b"\0" * MAX_IMAGE_BYTES)


@pytest.mark.parametrize("value", [PNG, bytearray(PNG), Drawn(), image_from_bytes(PNG)])
def test_what_shows_a_picture_is_one(value):
    assert image_from_value(value) == image_from_bytes(PNG)
    assert image_from_value(Drawn) is None


def test_a_tools_pictures_stand_behind_its_words():
    kept = ran(lambda: ["two", PNG, {"n": 2}])
    assert kept.parts == (Text('two\n{"n":2}'), image_from_bytes(PNG))
    assert ran(lambda: PNG).parts == (Text("(a picture)"), image_from_bytes(PNG))
    assert ran(lambda: ["a", "b"]).parts == (Text('["a","b"]'),)


def test_words_stand_for_them_where_the_model_takes_none():
    kept = ran(lambda: ["two", PNG], takes_images=False)
    assert kept.text == f"two\n[a picture, image/png, {len(PNG)} bytes: this model takes none]"


def test_a_picture_too_large_is_a_failure_in_words():
    kept = ran(lambda: PNG + b"\0" * MAX_IMAGE_BYTES)
    assert kept.is_error
    assert "make it smaller" in kept.text


def test_read_file_shows_a_picture_and_text_as_before(tmp_path):
    (tmp_path / "plot.png").write_bytes(PNG)
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    read = make_file_tools(RootFolder(tmp_path))[0]
    assert ran(read, given={"path": "plot.png"}).parts[1] == image_from_bytes(PNG)
    assert ran(read, given={"path": "a.txt", "start": 2}).text == "two\n"


def test_python_shows_the_last_value_where_it_is_a_picture():
    made = make_python_tool({"fig": Drawn()})
    assert ran(made, given={"code": "print('drawn')\nfig"}).parts == (
        Text("drawn\n"),
        image_from_bytes(PNG),
    )
    assert ran(made, given={"code": "fig"}).parts[1] == image_from_bytes(PNG)
    assert ran(made, given={"code": "1 + 1"}).text == "2\n"


def test_a_picture_may_have_3_750_000_bytes():
    largest = PNG + b"\0" * (3_750_000 - len(PNG))
    assert image_from_bytes(largest).media_type == "image/png"
    with pytest.raises(
        BadArguments, match=r"^x\.png has 3,750,001 bytes; a picture may have 3,750,000: make"
    ):
        image_from_bytes(largest + b"\0", "x.png")
