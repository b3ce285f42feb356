"""The English of the pages: what `make check` finds in a sentence, and what it leaves alone."""

from __future__ import annotations

import pytest
from check_prose import PAGES, list_findings

PAGE = """# Words words

It is
a page of two two lines.

```python
the the
```

| a table | the the |

A link to [the](the.md) [the](the.md), and `the the` in code.
"""


def test_a_sentence_is_checked_and_code_and_tables_are_not():
    (finding,) = list_findings(PAGE)
    assert finding.startswith("4: lexical_illusions: ")
    assert "'two two'" in finding


@pytest.mark.parametrize(
    "sentence",
    [
        "At the end of the day it is cheaper.",
        "This is the most unique setting.",
        "They could of compacted before.",
        "It costs more then that, irregardless of the model.",
    ],
)
def test_a_cliche_a_comparison_and_a_slip_are_found(sentence):
    assert list_findings(sentence)


def test_every_page_is_checked_and_nothing_is_found():
    assert {"README.md", "glossary.md", "solutions.md"} <= {page.name for page in PAGES}
    assert {p.name: list_findings(p.read_text(encoding="utf-8")) for p in PAGES} == {
        p.name: [] for p in PAGES
    }
