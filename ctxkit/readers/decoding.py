"""JSON out of untrusted bytes: by lines, and what programs write beyond the standard."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from ctxkit.messages import Fault

REPLACED = "not UTF-8: read with its broken bytes replaced"
"""What is said of bytes that are no UTF-8."""
DECODER = msgspec.json.Decoder()
"""Decodes one value, or lines of them."""
BROKEN_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError)
"""What decoding raises."""
_BEYOND = (b"\\u", b"NaN", b"Infinity")


def by_lines(lines: list[bytes], faults: list[Fault]) -> list[tuple[int, dict[str, Any]]]:
    """Return the JSON objects among lines, each with its number from 1; faults get the rest."""
    decode = DECODER.decode
    out: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(lines, 1):
        if not line or line.isspace():
            continue
        try:
            record = decode(line)
        except BROKEN_JSON as e:
            try:
                record = lenient(line, e)
            except (ValueError, RecursionError):
                faults.append(Fault(number, wrong_with(line, e)))
                continue
            if type(e) is UnicodeDecodeError:
                faults.append(Fault(number, REPLACED))
        if type(record) is dict:
            out.append((number, record))
        else:
            said = f"expected a JSON object, found {type(record).__name__}"
            faults.append(Fault(number, said))
    return out


def lenient(data: bytes, error: Exception) -> Any:
    """Decode what others write beyond JSON: halves of surrogate pairs, NaN, bytes of no UTF-8.

    Raises:
        ValueError: it is no JSON all the same.
        RecursionError: it is nested too deeply.
    """
    is_text = type(error) is not UnicodeDecodeError
    if is_text and not any(word in data for word in _BEYOND):
        raise ValueError("nothing that a more patient decoder would understand")
    value = json.loads(data.decode("utf-8", "replace"), parse_constant=lambda _: None)
    return _whole_text(value)


def _whole_text(value: Any) -> Any:
    if type(value) is str:
        if value.isascii():
            return value
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if type(value) is dict:
        return {_whole_text(k): _whole_text(v) for k, v in value.items()}
    return [_whole_text(v) for v in value] if type(value) is list else value


def wrong_with(line: bytes, error: Exception) -> str:
    """Return what is wrong with a line, in a few words."""
    if line.lstrip().startswith(b"//"):
        return "a comment, not JSON"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return "not JSON: " + str(error)[:120]
