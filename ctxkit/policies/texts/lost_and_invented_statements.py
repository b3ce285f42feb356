"""Audit of a summary by its words: obligations that it lost, decisions that it invented."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WORD = re.compile(r"\w[\w./-]*\w|\w")
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_MIN_WORD_CHARS = 4
_STEM_CHARS = 5
"""Words are equal where their first characters are, so that `tests` is found in `tested`."""
_LOST_BELOW = 0.6
"""A sentence is lost where less than this share of its words is in the summary."""
_INVENTED_BELOW = 0.5
"""A decision is invented where no sentence of the source has this share of its words."""
_COMMON_WORDS = re.compile(
    "that|this|with|from|into|they|them|then|than|will|would|should|could|have|been|were|your|you"
    "|user|agent|also|must|when|where|which|what|there|their|about|only|just|please|decided?"
    "|decision|agreed?|choose|chosen?|going|approved?|approval|allow(?:ed)?|permitted|permission"
    "|confirmed|consent|authori[sz]ed|granted"
)
_APPROVAL = re.compile(
    r"(?<!\w)(?:approv(?:ed|es|al)|allow(?:ed|s)|permi(?:tted|ssion)|authori[sz]ed|consent(?:ed)?"
    r"|granted)(?!\w)",
    re.IGNORECASE,
)
MAX_NAMED = 6
"""Maximum number of sentences of one kind in the instructions of a retry."""


def split_statements(text: str) -> list[str]:
    """Return the sentences of a text, each on one line, without marks of lists."""
    rows = (" ".join(s.split()).strip("-*# ") for s in _SENTENCE_END.split(text))
    return [row for row in rows if row]


# A line counts as kept by its words and not by its letters, as a model may reword it: enough of
# its content words must be anywhere in the summary. Names (with a capital or a digit behind the
# first word) must all be there, since another name is another rule.
def find_lost_lines(lines: Iterable[str], summary: str) -> tuple[str, ...]:
    """Return the sentences of some lines that a summary does not have."""
    stems = _stems(summary)
    sentences = dict.fromkeys(s for line in lines for s in split_statements(line))
    lost = (s for s in sentences if _share(s, stems) < _LOST_BELOW or not _names(s) <= stems)
    return tuple(lost)[:MAX_NAMED]


def find_invented_decisions(decisions: Iterable[str], sources: Iterable[str]) -> tuple[str, ...]:
    """Return the decisions for which no sentence of the sources has the words.

    Args:
        decisions: each as the summary has it.
        sources: all texts on which it may be based.
    """
    texts = list(sources)
    source_stems = _stems("\n".join(texts))
    of_sentences = [_stems(s) for text in texts for s in split_statements(text)]
    return tuple(
        decision
        for decision in decisions
        if not _names(decision) <= source_stems
        or not any(_share(decision, stems) >= _INVENTED_BELOW for stems in of_sentences)
    )[:MAX_NAMED]


def find_invented_approvals(
    lines: Iterable[str], user_texts: Iterable[str], approvals: Sequence[str]
) -> tuple[str, ...]:
    """Return the sentences that mention an approval which the user never gave.

    Args:
        lines: of the summary.
        user_texts: what the user wrote.
        approvals: the approvals that are on record, each in words.
    """
    user_stems = [_stems(s) for text in user_texts for s in split_statements(text)]
    user_stems += [_stems(each) for each in approvals]
    claims = (s for line in lines for s in split_statements(line) if _APPROVAL.search(s))
    return tuple(
        claim
        for claim in dict.fromkeys(claims)
        if not any(_share(claim, stems) >= _INVENTED_BELOW for stems in user_stems)
    )[:MAX_NAMED]


def _content_words(text: str) -> list[str]:
    words = [w.casefold() for w in _WORD.findall(text)]
    long = [w for w in words if len(w) >= _MIN_WORD_CHARS and not _COMMON_WORDS.fullmatch(w)]
    return long or words


def _stems(text: str) -> set[str]:
    """Return the stems of all words of a text."""
    return {w.casefold()[:_STEM_CHARS] for w in _WORD.findall(text)}


def _names(text: str) -> set[str]:
    """Return the stems of names: words with a capital or a digit behind the first one."""
    words = _WORD.findall(text)
    inner = [w for w in words[1:] if any(c.isupper() or c.isdigit() for c in w)]
    first = [w for w in words[:1] if any(c.isupper() or c.isdigit() for c in w[1:])]
    return {w.casefold()[:_STEM_CHARS] for w in (*first, *inner) if len(w) > 1}


def _share(sentence: str, stems: set[str]) -> float:
    """Return the share of a sentence's content words that are among some stems; 1 without any."""
    words = _content_words(sentence)
    return sum(w[:_STEM_CHARS] in stems for w in words) / len(words) if words else 1.0
