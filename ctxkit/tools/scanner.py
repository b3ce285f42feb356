"""A search in a process of its own, which can be killed: Python's regular expressions may run for
ever.

It is started as a script without the kit, reads JSON lines (a pattern, then names, numbers of first
lines and texts of files) and writes hits.
"""

from __future__ import annotations

import json
import re
import sys

LINE, SHOWN = 4000, 400
"""Characters of a line that are looked at, and that are shown."""
WRONG = 2
"""Status where the pattern is no regular expression."""


def main() -> int:
    """Write the name of each file behind a NUL, and `file:line: text` of as many hits as asked."""
    asked = json.loads(sys.stdin.buffer.readline())
    try:
        compiled = re.compile(asked["pattern"])
    except (re.error, RecursionError, OverflowError) as e:
        sys.stderr.write(str(e))
        return WRONG
    left = asked["hits"]
    for given in sys.stdin.buffer:
        file = json.loads(given)
        sys.stdout.buffer.write(b"\0" + json.dumps(file["name"]).encode() + b"\n")
        sys.stdout.buffer.flush()  # so far it came, also where the time is over
        for number, line in enumerate(file["text"].split("\n"), file["first"]):
            if compiled.search(line[:LINE]):
                hit = f"{file['name']}:{number}: {line[:SHOWN]}\n"
                sys.stdout.buffer.write(hit.encode("utf-8", "replace"))
                left -= 1
                if not left:
                    return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
