"""What a pruning says of all calls at once is what it says call by call."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from talks_by_chance import Fours, by_chance

from ctxkit.engine import Run, advance, log_of, run
from ctxkit.errors import BadArguments
from ctxkit.history import Log
from ctxkit.policies import triggers
from ctxkit.policies.clear import Clear
from ctxkit.policies.curves import last_results
from ctxkit.policies.rules import Rules


class Last:
    """All tool results but the last n become a placeholder."""

    def __init__(self, n, text="[gone]"):
        self.n, self.text = n, text

    def __call__(self, h, room):
        tools = np.flatnonzero(h.role("tool"))
        return h.shorten(tools[: max(0, len(tools) - self.n)], self.text, "old")


class Curved(Last):
    def curve(self, h, start, stop, clock, room):
        return last_results(h, (start, stop), clock, self.n, self.text)


class Told(Curved):
    changes = ("tool",)


def summing(h, room):
    return h.summarise(h.safe(h.back(300)), 80, "full")


def dropping(h, room):
    return h.drop(h.safe(len(h) // 2), "the middle", start=h.safe(len(h) // 4))


@given(st.integers(0, 10**6), st.integers(0, 9), st.integers(300, 5000), st.sampled_from([summing, dropping]))
@settings(max_examples=40)
def test_the_curve_is_the_call(seed, n, at, policy):
    log = log_of(by_chance(seed, 50), Rules(counter=Fours()))
    runs = [run(log, Rules(policy, triggers.Above(at), pruning=p(n), counter=Fours())) for p in (Last, Curved, Told)]
    for done in runs[1:]:
        assert done.prompts.tolist() == runs[0].prompts.tolist()
        assert done.fresh_tokens.tolist() == runs[0].fresh_tokens.tolist()
        assert [c.call for c in done.cuts] == [c.call for c in runs[0].cuts]


@pytest.mark.parametrize("step", [1, 7, 20])
def test_the_curve_may_be_taken_in_pieces(step):
    log = log_of(by_chance(9, 50), Rules(counter=Fours()))
    rules = Rules(pruning=Curved(2), counter=Fours())
    pieces = Run(log, rules)
    for stop in [*range(step, log.calls, step), log.calls]:
        advance(pieces, rules, stop)
    assert pieces.fresh_tokens.tolist() == run(log, rules).fresh_tokens.tolist()
    assert pieces.total == run(log, rules).total


@given(st.integers(0, 10**6), st.integers(0, 9), st.sampled_from([(), ("shell",), ("read_*", "write_*")]))
@settings(max_examples=20)
def test_clear_says_of_all_calls_what_it_says_of_each(seed, n, deny):
    clear = Clear(keep_last=n, deny=deny)
    log = log_of(by_chance(seed, 40), Rules(counter=Fours()))
    a = run(log, Rules(pruning=clear.__call__, counter=Fours()))
    b = run(log, Rules(pruning=clear, counter=Fours()))
    assert a.prompts.tolist() == b.prompts.tolist()
    assert a.fresh_tokens.tolist() == b.fresh_tokens.tolist()


def test_a_result_that_comes_to_stay_is_no_longer_cleared():
    log = Log.of(messages := list(by_chance(3, 12).messages), Fours())
    tools = [m for m in messages if m.role == "tool"]
    rules = Rules(pruning=Told(0), counter=Fours())
    run(log, rules)
    log.append(msgspec.structs.replace(tools[0], id="late", pinned=True))
    log.open()
    done, plain = run(log, rules), run(log, Rules(pruning=Last(0), counter=Fours()))
    assert done.prompts.tolist() == plain.prompts.tolist()


def test_a_curve_of_another_length_is_refused():
    class Short(Last):
        def curve(self, h, start, stop, clock, room):
            return np.zeros(stop - start, int), np.zeros(stop - start - 1, int)

    log = log_of(by_chance(3, 12), Rules(counter=Fours()))
    with pytest.raises(BadArguments, match="curve of Short gave 12 and 11 sizes for 12 calls"):
        run(log, Rules(pruning=Short(1), counter=Fours()))


def test_a_policy_cannot_write_into_the_log():
    def careless(h, room):
        h.sizes[:] = 0
        return h

    log = log_of(by_chance(3, 12), Rules(counter=Fours()))
    with pytest.raises(ValueError, match="read-only"):
        run(log, Rules(pruning=careless, counter=Fours()))
    assert log.column("tokens").tolist() == log.tokens.sizes


def test_a_curve_may_end_early():
    class Some(Curved):
        def curve(self, h, start, stop, clock, room):
            return super().curve(h, start, min(stop, start + 3), clock, room)

    log = log_of(by_chance(4, 40), Rules(counter=Fours()))
    a, b = (run(log, Rules(summing, triggers.Above(2000), pruning=p(2), counter=Fours())) for p in (Last, Some))
    assert a.cuts
    assert a.prompts.tolist() == b.prompts.tolist()
    assert a.fresh_tokens.tolist() == b.fresh_tokens.tolist()
