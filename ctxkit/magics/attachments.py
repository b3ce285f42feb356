"""What goes with a prompt: pictures, from files or from variables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.display.markup import line
from ctxkit.errors import BadArguments
from ctxkit.tools.pictures import KINDS, MOST_BYTES, as_picture, picture

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ctxkit.messages import Image


def attachments(words: str | None, names: Mapping[str, Any]) -> list[Image]:
    """Return the pictures that `--attach` names, separated by commas.

    Args:
        words: paths in the working folder, or variables that hold a figure, a Pillow image or
            bytes.
        names: the user's variables.

    Raises:
        BadArguments: one is not there, is no picture, or is too large.
    """
    if not words:
        return []
    given = [words] if Path(words).expanduser().is_file() else words.split(",")
    return [_one(w.strip(), names) for w in given if w.strip()]


def _one(word: str, names: Mapping[str, Any]) -> Image:
    if word.isidentifier() and word in names:
        held = as_picture(names[word])
        if held is None:
            raise BadArguments(f"`--attach {line(word, 60)}`: the variable holds no picture.")
        return held
    path = Path(word).expanduser()
    if not path.is_file():
        said = f"`--attach {line(word, 200)}`: there is no such file, and no such variable."
        raise BadArguments(said)
    try:
        with path.open("rb") as file:
            return picture(file.read(MOST_BYTES + 1), line(word, 200))
    except OSError as e:
        raise BadArguments(f"{line(word, 200)!r} cannot be read ({e.strerror}).") from None
    except BadArguments as e:
        if "no picture" not in str(e):
            raise
        raise BadArguments(
            f"{line(word, 200)} is no picture ({KINDS}): a text or a document is read by the "
            "agent's own tools, or put where it finds it by `%context add`."
        ) from None
