"""Worker script of the Python search, killable; it imports nothing of ctxkit."""

from __future__ import annotations

import json
import re
import sys

MAX_LINE_CHARS, MAX_OUTPUT_CHARS = 4000, 400
"""Characters of a line that are looked at, and that are shown."""
BAD_PATTERN_STATUS = 2
"""Status where the pattern is no regular expression."""


def main() -> int:
    """Write the name of each file behind a NUL, and `file:line: text` of as many hits as asked."""
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
        sys.stdout.buffer.flush()  # so far it came, also where the time is over
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
