"""A search in a process of its own, which can be killed: Python's regular expressions may run for ever.

It is started as a script without the kit, reads JSON lines (a pattern, then names and texts of files) and writes hits.
"""

from __future__ import annotations

import json
import re
import sys

LINE, SHOWN = 4000, 400
"""Characters of a line that are looked at, and that are shown."""


def main() -> int:
    """Write `file:line: text` of each hit; stop after the number that was asked for."""
    asked = json.loads(sys.stdin.buffer.readline())
    try:
        compiled = re.compile(asked["pattern"])
    except (re.error, RecursionError, OverflowError) as e:
        sys.stderr.write(str(e))
        return 2
    left = asked["hits"]
    for given in sys.stdin.buffer:
        file = json.loads(given)
        for number, line in enumerate(file["text"].splitlines(), 1):
            if compiled.search(line[:LINE]):
                hit = f"{file['name']}:{number}: {line[:SHOWN]}\n"
                sys.stdout.buffer.write(hit.encode("utf-8", "replace"))
                left -= 1
                if not left:
                    return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
