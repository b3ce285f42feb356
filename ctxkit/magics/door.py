"""The door of every magic: errors leave it as one line of our own kind, which notebook tests still
see.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from IPython.core.error import UsageError

from ctxkit.errors import BadArguments, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")


def door(magic: Callable[P, R]) -> Callable[P, R]:
    """Turn IPython's `UsageError` (invisible to notebook tests) and trouble with files into errors
    of the kit.
    """

    @wraps(magic)
    def opened(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            return magic(*args, **kwargs)
        except UsageError as e:
            raise BadArguments(str(e)) from None
        except OSError as e:
            where = f" {e.filename}" if e.filename else ""
            raise StoreError(
                f"The file{where} could not be used: {e.strerror or type(e).__name__}."
            ) from None

    return opened
