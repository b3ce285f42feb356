"""The rules that a user stated, as sentences: extracted, and carried past compactions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.policies.history.history import find_end_of_summaries
from ctxkit.policies.texts.message_lines_for_extracts import split_sentences
from ctxkit.policies.validated_settings_and_scheduled_prunings import DataclassPolicy
from ctxkit.session.messages import (
    CORRECTION_KIND,
    INJECTED_KIND,
    OTHER_AGENT_KINDS,
    RECALLED_KIND,
    Message,
    Text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ctxkit.policies.history.history import History
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Positive
    from ctxkit.tokens import ContextBudget


RULES_HEADING = "RULES and facts that the user stated earlier, word for word; the later one holds:"


@dataclass(frozen=True, kw_only=True, repr=False)
class KeepUserRules(DataclassPolicy):
    """Insert the user's rules that were removed from the prompt after the summary, word for word.

    Use it after a policy that removes messages: `summary | keep_rules`. It is renewed at each
    compaction and depends on the history only, so a replay and a live session agree. Rules that
    the summary holds word for word are not stated twice.

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules("window:keep_tokens=2000 | keep_rules", above)
        >>> replay = ck.replay(ck.read(ck.samples.path("chat")), rules)
        >>> sum(item.message.kind == "memory" for item in replay.sent(-1))
        1
    """

    tokens: Positive = 400
    """Maximum tokens of the sentences: rules that bind or forbid come first, then choices,
    then the user's other statements; newer ones first."""

    def __call__(self, history: History, _budget: ContextBudget) -> History:
        """Return the history with the rules; unchanged where none was removed."""
        old = [p for p in range(history.head.size) if _is_digest(history[p])]
        rules = fit_rules(find_removed_rules(history), self.tokens, history.log.counter)
        text = "\n".join([RULES_HEADING, *(f"- {rule.text}" for rule in rules)]) if rules else ""
        if any(history[p].text == text for p in old):
            return history
        if old:
            history = history.drop(old, "rules stated anew", method="keep_rules")
        if not rules:
            return history
        place = find_end_of_summaries(history)
        place = history.safe(place) or history.safe_before(place)
        message = Message(role="user", kind=RECALLED_KIND, parts=(Text(text),))
        return history.insert(place, message, "the user's rules, kept", method="keep_rules")


def _is_digest(message: Message) -> bool:
    return message.kind == RECALLED_KIND and message.text.startswith(RULES_HEADING)


def find_removed_rules(history: History) -> list[UserRule]:
    """Return the user's rules and statements that no message states word for word, in order.

    A rule that was stated twice has the place of its last statement.
    """
    head = [history[p] for p in range(history.head.size)]
    present_ids = {m.id for m in head}
    head_text = "\n".join(" ".join(m.text.split()) for m in head if not _is_digest(m))
    removed: dict[str, UserRule] = {}
    for row, message_id, rules in _RuleIndex.of(history.log).read_until(history.hi):
        is_visible = row >= history.lo or message_id in present_ids
        for rule in rules:
            removed.pop(rule.text, None)
            if not is_visible and rule.text not in head_text:
                removed[rule.text] = rule
    return list(removed.values())


class _RuleIndex:
    """The rules of a growing log by row; each message is read once."""

    def __init__(self, log: MessageLog) -> None:
        self._log, self._read = log, 0
        self._rows: list[tuple[int, str, tuple[UserRule, ...]]] = []

    @classmethod
    def of(cls, log: MessageLog) -> _RuleIndex:
        """Return the index of a log, from its cache."""
        index: _RuleIndex = log.memo.setdefault("user rules", cls(log))
        return index

    def read_until(self, stop: int) -> list[tuple[int, str, tuple[UserRule, ...]]]:
        """Return the rows before `stop` with rules: row, message id, rules."""
        for row in range(self._read, stop):
            message = self._log.messages[row]
            if rules := tuple(iter_rules_and_statements(message)):
                self._rows.append((row, message.id, rules))
        self._read = max(self._read, stop)
        return [entry for entry in self._rows if entry[0] < stop]


# Extraction without a model. A sentence of the user is a rule where it has
#   - a phrase that binds or forbids ("never", "must", "do not", "only", "from now on", "leave ...
#     alone"), in English, German, French, Spanish, Chinese or Japanese, or an order about all
#     replies or for a case ("when you cite something, use ..."); or
#   - a phrase that chooses ("use", "pin", "answer in", "prefer") or a named quantity ("budget",
#     "ticket", "port") together with an exact value, such as a version or an id.
# All other sentences of the user are statements, unless they begin as a request or an answer does
# ("can you", "now look at", "yes"). They are no rules, but may be carried on where there is space.
# Questions, quoted lines, code blocks, pasted output and what programs wrote in the user's role are
# left out.
# The patterns begin at word starts and have bounded repeats, so the time is linear in the text.

MAX_RULE_CHARS = 300
"""Characters of a sentence that can be a rule; longer ones are left out."""
MAX_MESSAGE_CHARS = 40_000
"""Characters of a message that are searched: the first half and the last half of them."""
_MIN_RULE_CHARS = 8
_NOT_THE_USERS = frozenset(
    (
        *(INJECTED_KIND, RECALLED_KIND, CORRECTION_KIND, *OTHER_AGENT_KINDS),
        *("wrapper", "custom", "hook", "reminder", "attachment", "bash", "demo", "error"),
    )
)
"""Kinds of messages in the role of the user that the user did not write."""


class SentenceKind(IntEnum):
    """What a sentence of the user does."""

    STATES = 0
    """It states something, and is no rule."""
    CHOOSES = 1
    """It chooses, or names a value."""
    BINDS = 2
    """It binds or forbids."""


class UserRule(NamedTuple):
    """A rule of the user, in the user's words."""

    text: str
    kind: SentenceKind


def _compile_words(*phrases: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(phrases)})(?!\w)", re.IGNORECASE)


_STRONG = _compile_words(
    *(r"never", r"always", r"must(?:n['’]t)?", r"shall", r"(?:do|should|may|can)(?: not|n['’]t)"),
    *(r"dont", r"cannot", r"only", r"under no circumstances?", r"no matter what", r"at all times"),
    *(
        r"from now on",
        r"whatever happens",
        r"make sure",
        r"ensure",
        r"avoid",
        r"without(?: \w+ing)?",
    ),
    *(
        r"ask (?:me )?(?:first|before)",
        r"before you \w+",
        r"hands off",
        r"off[- ]limits",
        r"forbidden",
    ),
    *(r"not allowed", r"prohibited", r"(?:stay|keep) (?:away|out|off|clear|within|under|below)"),
    *(r"stick (?:to|with)", r"leave [^.\n]{1,60} (?:alone|as (?:it is|they are|is)|untouched)"),
    *(
        r"at (?:most|least)",
        r"no \w+",
        r"nothing",
        r"nobody",
        r"none",
        r"neither",
        r"unless",
        r"except",
    ),
    *(
        r"stay(?:s|ing)? (?:on|with|at|in)",
        r"exclusively",
        r"solely",
        r"strictly",
        r"out of bounds",
    ),
    *(r"(?:is|are) to (?:be|stay|remain)", r"(?:limited|restricted) to", r"insists?", r"requires?"),
    *(
        r"whenever",
        r"every time",
        r"until i",
        r"wait (?:for|until)",
        r"as of now",
        r"going forward",
    ),
    *(
        r"(?:i|we) (?:want|need|expect) (?:every|all|each|you to|it to|no)",
        r"refuse to",
        r"refrain from",
    ),
    *(
        r"convention is",
        r"policy is",
        r"rule is",
        r"we agreed",
        r"as agreed",
        r"up to me",
        r"my call",
    ),
    # standing orders: of the agent's replies, of all that follows, of what to do in some case
    r"(?:your|all|every|each|any) (?:next |later |further )?(?:repl(?:y|ies)|answers?|responses?)",
    r"(?:for|during) the rest of (?:this|the|our) \w+",
    r"on my behalf",
    r"(?:is|are) (?:read[- ]only|frozen|required|mandatory|confidential)",
    *(
        r"(?:has|have|needs?) to (?:stay|be|remain|keep|work|run|pass)",
        r"keep (?:it|them|the|all|every)",
    ),
    # German, French, Spanish
    *(
        r"nie(?:mals)?",
        r"immer",
        r"auf keinen fall",
        r"m(?:uss|üssen|ussen)",
        r"d(?:arf|ürfen) nicht",
    ),
    *(
        r"nur",
        r"keine[nmrs]?",
        r"nicht",
        r"jamais",
        r"toujours",
        r"ne \w+ pas",
        r"nunca",
        r"siempre",
    ),
    r"no (?:toques|uses|cambies|borres)",
)
_STRONG_SIGNS = re.compile(
    r"不要|不得|不能|必须|必須|禁止|务必|只能|只用|绝不|总是|始终|必ず|しないで|してください|ないこと"
)
_CASE_ORDER = re.compile(
    r"(?:when|before|after|while|if|once) (?:you|i) \w+[^,.\n]{0,80}, "
    r"(?!(?:i|we|it|you|that|the) )",
    re.IGNORECASE,
)
"""The beginning of an order for a case: "when you cite something, use ..."."""
_CHOICE = _compile_words(
    *(r"us(?:e|ing)", r"target", r"pin", r"prefer", r"deploy (?:to|on)", r"name (?:it|them|the)"),
    *(r"call (?:it|them|the)", r"verwende", r"nutze", r"nimm", r"utilise", r"usa"),
    *(r"budget", r"limit", r"deadline", r"port", r"version", r"region", r"release", r"ticket"),
    *(r"branch", r"account", r"project id", r"customer", r"contract", r"schema"),
)
_ALWAYS_CHOICE = _compile_words(
    r"(?:answer|reply|respond|write|comment|document|speak)(?: \w+){0,3} in [A-Z]\w+",
    *(
        r"antworte(?:n sie)?(?: \w+){0,2} auf \w+",
        r"(?:i|we)(?:['’]d)? prefer",
        r"prefer \w+ (?:over|to)",
    ),
    *(r"please (?:use|keep|avoid|leave)", r"bitte", r"remember (?:that|to)", r"note that"),
    *(r"réponds en \w+", r"responde en \w+"),
)
_VALUE = re.compile(r"\d|`[^`\n]+`|[\w-]+/[\w/-]+|\b[A-Z]{2,}[-_][A-Z\d]")
_REQUEST = re.compile(
    r"(?:(?:please|ok(?:ay)?|now|then|next|and|so|also|well|hi|hey|hello)[,:]?\s+){0,3}"
    r"(?:(?:can|could|would|will) you|let['’]?s|look|find|fix|go|continue|run|show|tell|check|add"
    r"|make|create|implement|write|read|explain|try|do|see|test|build|open|commit|push|start"
    r"|investigate|debug|summari[sz]e|refactor|remove|delete|update|change|move|rename|review"
    r"|yes|no|thanks?|thank you|great|good|nice|perfect|sure|why|what|how|where|when|who|which"
    r"|the \w+ (?:\w+ )?(?:failed|fails|is broken|does not work))"
    r"(?!\w)",
    re.IGNORECASE,
)
"""The beginning of a request or of an answer."""
MIN_LETTER_SHARE = 0.7
"""Share of letters and blanks below which a sentence is taken for output of a program."""
_CHOICE_START = re.compile(r"(?:please\s+)?(?:use|pin|prefer|target)(?!\w)", re.IGNORECASE)
"""Beginning of a sentence that is speech even where most of it is a value ("Use Node 20.11.")."""
_OUTPUT_START = re.compile(
    r"\s*(?:<|https?://|\$ |\w*(?:Error|Exception|error)\b|Traceback|at \S+ ?\("
    r"|\[?\d[\d:.,T/-]{3,}|npm |\{|\})"
)
_FENCE = re.compile(
    r"^[ \t]*(?:```|~~~).*?(?:^[ \t]*(?:```|~~~)[ \t]*$|\Z)", re.DOTALL | re.MULTILINE
)
_QUOTED_LINE = re.compile(r"^[ \t]*(?:>|\|).*$", re.MULTILINE)
_BULLET = re.compile(r"^\s*(?:[-*•#]+|\d{1,3}[.)])\s+")


def extract_user_rules(messages: Iterable[Message]) -> list[UserRule]:
    """Return the rules that the user states in messages, each once, in order.

    Args:
        messages: messages of any roles.

    Example:
        >>> from ctxkit.session.messages import Message, Text
        >>> said = "Fix the login. Never push to main! Use Node 20.11."
        >>> message = Message(role="user", parts=(Text(said),))
        >>> [rule.text for rule in extract_user_rules([message])]
        ['Never push to main!', 'Use Node 20.11.']
    """
    return list({rule.text: rule for m in messages for rule in iter_message_rules(m)}.values())


def iter_message_rules(message: Message) -> Iterator[UserRule]:
    """Yield the rules that a user message states; nothing for other messages."""
    return (r for r in iter_rules_and_statements(message) if r.kind > SentenceKind.STATES)


def iter_rules_and_statements(message: Message) -> Iterator[UserRule]:
    """Yield the rules and the other statements of one message of the user."""
    if message.role != "user" or message.kind in _NOT_THE_USERS:
        return
    for part in message.parts:
        if isinstance(part, Text):
            yield from parse_rules_and_statements(part.text)


def parse_rules_and_statements(text: str) -> Iterator[UserRule]:
    """Yield the rules and statements of a text, without bullets, white space joined."""
    if len(text) > MAX_MESSAGE_CHARS:
        text = f"{text[: MAX_MESSAGE_CHARS // 2]}\n{text[-MAX_MESSAGE_CHARS // 2 :]}"
    for part in split_sentences(_QUOTED_LINE.sub("", _FENCE.sub("", text))):
        if not _MIN_RULE_CHARS <= len(part) <= MAX_RULE_CHARS:
            continue
        sentence = " ".join(_BULLET.sub("", part).split())
        if sentence.endswith(("?", "？", ":")) or _is_pasted(sentence):
            continue
        if _binds(sentence):
            yield UserRule(sentence, SentenceKind.BINDS)
        elif _ALWAYS_CHOICE.search(sentence) or _chooses_value(sentence):
            yield UserRule(sentence, SentenceKind.CHOOSES)
        elif not _REQUEST.match(sentence):
            yield UserRule(sentence, SentenceKind.STATES)


def _binds(sentence: str) -> bool:
    return bool(
        _STRONG.search(sentence) or _STRONG_SIGNS.search(sentence) or _CASE_ORDER.match(sentence)
    )


def _is_pasted(sentence: str) -> bool:
    """Return True where a sentence looks like output of a program and not like speech."""
    if _OUTPUT_START.match(sentence) or "\\n" in sentence:
        return True
    if _CHOICE_START.match(sentence):
        return False
    letters = sum(c.isalpha() or c == " " for c in sentence)
    return letters < MIN_LETTER_SHARE * len(sentence)


def _chooses_value(sentence: str) -> bool:
    return bool(_VALUE.search(sentence) and _CHOICE.search(sentence))


def fit_rules(
    rules: Sequence[UserRule], tokens: int, count: Callable[[str], int]
) -> list[UserRule]:
    """Return the rules that fit a number of tokens, in the given order.

    Rules that bind or forbid come first, then those that choose, then statements, each the newer
    ones first.

    Args:
        rules: rules, older ones first.
        tokens: maximum tokens of all rules, each with a list mark.
        count: counts the tokens of a text.
    """
    order = sorted(range(len(rules)), key=lambda i: (-rules[i].kind, -i))
    fitting, left = set[int](), tokens
    for i in order:
        size = count(f"- {rules[i].text}\n")
        if size <= left:
            fitting.add(i)
            left -= size
    return [rule for i, rule in enumerate(rules) if i in fitting]
