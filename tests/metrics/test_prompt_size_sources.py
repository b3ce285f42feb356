"""Where the sizes of a session's prompts come from, and what is said of prompts in order."""

from __future__ import annotations

import pytest
from builders import assistant, session, user

from ctxkit.metrics import PromptAndSharedPrefixSizes, get_prompt_sizes, has_prompt_sizes
from ctxkit.session import Message, SizeOnly, Usage

BILLED = assistant("ok", usage=Usage(input_tokens=70, cache_read_tokens=30))
DERIVED = assistant("ok", usage=Usage(input_tokens=60), details={"usage_source": "derived"})
BARE = assistant("ok")
EMPTY = Message(role="assistant", id="x", parts=())

SOURCES = {
    "recorded": ([user(), BILLED, user(), BARE], [100, None]),
    "derived": ([user(), BILLED, user(), DERIVED], [100, 60]),
    "estimated": ([user("x" * 400), BARE], None),
    None: ([EMPTY, EMPTY], [None, None]),
}


@pytest.mark.parametrize("source", SOURCES)
def test_sizes_have_the_source_of_the_weakest(source):
    log, wanted = SOURCES[source]
    sizes, found = get_prompt_sizes(session(*log))
    assert found == source
    assert wanted is None or sizes == wanted
    assert has_prompt_sizes(session(*log)) is (source is not None)


def test_without_usage_a_prompt_is_counted():
    (size,), source = get_prompt_sizes(session(user("word " * 100), BARE))
    assert (source, 100 <= size <= 120) == ("estimated", True)
    sized = Message(role="user", id="u", parts=(SizeOnly("document", tokens=500),))
    (size,), _ = get_prompt_sizes(session(sized, BARE))
    assert 500 <= size <= 510


def test_prompts_are_looked_up_and_searched_in_a_range():
    sent = PromptAndSharedPrefixSizes([100, 200, 150, 300], [0, 90, 150])
    assert (len(sent), sent.prompt(2), sent.shared(1), sent.shared(0)) == (4, 150, 90, 0)
    firsts = [sent.find_first_reaching(size, 0, 4) for size in (100, 101, 200, 201, 300, 301)]
    assert firsts == [0, 1, 1, 3, 3, None]
    assert [sent.find_first_reaching(150, *of) for of in ((2, 4), (3, 4), (0, 1))] == [2, 3, None]
