"""Worker script of the Python search, which can be killed; it imports nothing of ctxkit."""

from __future__ import annotations

import json
import re
import sys

MAX_LINE_CHARS, MAX_OUTPUT_CHARS = 4000, 400
"""Characters of a line that are searched, and that are written."""
BAD_PATTERN_STATUS = 2
"""Exit status for an invalid pattern."""


def main() -> int:
    """Read a request and texts as lines of JSON; write file names (after a NUL) and hits."""
    request = json.loads(sys.stdin.buffer.readline())
    try:
        compiled = re.compile(request["pattern"])
    except (re.error, RecursionError, OverflowError) as e:
        sys.stderr.write(str(e))
        return BAD_PATTERN_STATUS
    hits_left = request["hits"]
    for line_bytes in sys.stdin.buffer:
        file = json.loads(line_bytes)
        sys.stdout.buffer.write(b"\0" + json.dumps(file["name"]).encode() + b"\n")
        sys.stdout.buffer.flush()  # tells how far the search came, if it is killed
        for number, line in enumerate(file["text"].split("\n"), file["first"]):
            if compiled.search(line[:MAX_LINE_CHARS]):
                hit = f"{file['name']}:{number}: {line[:MAX_OUTPUT_CHARS]}\n"
                sys.stdout.buffer.write(hit.encode("utf-8", "replace"))
                hits_left -= 1
                if not hits_left:
                    return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
