"""Redaction of secrets in texts, JSON values and streams; secrets of the environment."""

# Five kinds of secrets are redacted: values of the environment's secrets, also encoded
# (`get_environment_secrets`); keys of a vendor's published form and blocks of private keys
# (`redaction_rules_for_vendor_and_private_keys`); webhook addresses; and random-looking values
# beside a secret's name or in addresses (`redaction_rules_by_context`). Each kind is a rule of
# `RULES`. Rules match the text without escape sequences (`redaction_rule_and_hidden_characters`).

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal import redaction_rules_by_context, redaction_rules_for_vendor_and_private_keys
from ctxkit._internal.environment_secrets import MIN_CHARS_IN_WORDS, get_environment_secrets
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.redaction_rule_and_hidden_characters import (
    RedactionRule,
    TextWithoutHiddenCharacters,
    compile_once,
)
from ctxkit._internal.redaction_rules_by_context import is_secret_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ctxkit._internal.redaction_rule_and_hidden_characters import Span


__all__ = ["REDACTION_MARK", "get_environment_secrets", "redact", "redact_json"]
__dir__ = make_dunder_dir(__all__)


# The forms are those of the services' manuals. Only the part of an address that grants access is
# redacted.
class _WebhookPattern(NamedTuple):
    """The webhook addresses of one service.

    A `/` in the two patterns also matches its escaped forms in JSON and URLs.
    """

    service: str
    hint: str
    """A substring of the address, in lower case."""
    between: str
    """Pattern of the text between hint and secret."""
    secret: str
    """Pattern of the secret."""
    example: str
    """See `RedactionRule`."""
    must_look_random: bool = False
    """True where the secret must also look random, as a word can be in its place."""


_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_RANDOM_UUID = "{h8}-{h4}-{h4}-{h4}-{h12}"
_SLASH = r"(?:\\{0,4}/|%2f)"
WEBHOOKS = (
    _WebhookPattern(
        "Slack", "hooks.slack", r"(?:-gov)?\.com/(?:services|workflows|triggers)/",
        r"(?:\w{3,}+/){2,3}\w{8,}+", "https://hooks.slack.com/services/«T0{u7}/B0{u9}/{a24}»",
    ),
    _WebhookPattern(
        "Slack, without its host", "services", "/", r"T\w{6,}+/B\w{6,}+/\w{16,}+",
        "x/services/«T0{u7}/B0{u9}/{a24}»",
    ),
    _WebhookPattern(
        "Discord", "webhooks", "/", r"\d{10,}+/[\w-]{30,}+",
        "https://discord.com/api/webhooks/«{d18}/{w67}z»",
    ),
    _WebhookPattern(
        "Teams", "webhook", "(?:b2)?/", rf"{_UUID}@{_UUID}(?:/[\w-]{{1,50}}+){{1,4}}",
        f"https://x.webhook.office.com/webhookb2/«{_RANDOM_UUID}@{_RANDOM_UUID}/Hook/{{h32}}/x»",
    ),
    _WebhookPattern(
        "Mattermost", "hooks", "/", r"[a-z0-9]{26}(?![\w-])",
        "https://chat.example.com/hooks/«{s26}»", must_look_random=True,
    ),
    _WebhookPattern(
        "Rocket.Chat", "hooks", "/", r"[a-z0-9]{17,24}/[a-z0-9]{40,64}(?![\w-])",
        "https://chat.example.com/hooks/«{a24}/{a48}»", must_look_random=True,
    ),
    _WebhookPattern(
        "Zapier", "hooks.zapier.com", r"/hooks/\w{1,20}/", r"(?:v\d/)?\d{3,}+/\w{4,}+",
        "https://hooks.zapier.com/hooks/catch/«{d7}/{s7}»/",
    ),
    _WebhookPattern(
        "Make", "hook.", r"(?:[a-z]{2}\d\.make|integromat)\.com/", "[a-z0-9]{20,}+",
        "https://hook.eu1.make.com/«{s32}»",
    ),
    _WebhookPattern(
        "Netlify", "build_hooks", "/", "[0-9a-f]{16,}+",
        "https://api.netlify.com/build_hooks/«{h24}»",
    ),
    _WebhookPattern(
        "WeCom", "webhook", r"/send\?key=", _UUID,
        f"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=«{_RANDOM_UUID}»",
    ),
    _WebhookPattern(
        "IFTTT", "maker.ifttt.com", r"/(?:use|trigger/[\w{}.-]{1,100}+(?:/json)?/with/key)/",
        r"[\w-]{10,}+", "https://maker.ifttt.com/trigger/opened/with/key/«{w43}»",
    ),
    _WebhookPattern(
        "Google Chat", "chat.googleapis.com", r"/v\d(?:\w|/){1,200}\?[^\s\"']{0,300}?token=",
        r"[\w.%~+-]{16,}+",
        "https://chat.googleapis.com/v1/spaces/AAAA{a7}/messages?key=K&token=«{w43}%3D»",
    ),
    _WebhookPattern(
        "Feishu", "open-apis", "/bot/(?:v2/)?hook/", r"[\w-]{16,}+",
        f"https://open.feishu.cn/open-apis/bot/v2/hook/«{_RANDOM_UUID}»",
    ),
    _WebhookPattern(
        "PagerDuty", "events.pagerduty.com", "/integration/", "[0-9a-f]{32}",
        "https://events.pagerduty.com/integration/«{h32}»/enqueue",
    ),
    _WebhookPattern(
        "Vercel", "api.vercel.com", r"/v\d+/integrations/deploy/", r"[\w-]{8,}+/[\w-]{8,}+",
        "https://api.vercel.com/v1/integrations/deploy/«prj_{a24}/{a10}»",
    ),
    _WebhookPattern(
        "Webex", "webexapis.com", r"/v\d+/webhooks/incoming/", r"[\w-]{20,}+",
        "https://webexapis.com/v1/webhooks/incoming/«{a80}»",
    ),
)  # fmt: skip


def _find_webhooks(
    hooks: Sequence[_WebhookPattern], view: TextWithoutHiddenCharacters
) -> Iterator[Span]:
    for hook in hooks:
        at = view.low.find(hook.hint)
        while at >= 0:
            at += len(hook.hint)
            form = f"(?i){hook.between}({hook.secret})".replace("/", _SLASH)
            hit = view.match(compile_once(form), at)
            if hit and _is_secret(hook, hit[1]):
                yield hit.span(1)
            at = view.low.find(hook.hint, hit.end() if hit else at)


def _is_secret(hook: _WebhookPattern, part: str) -> bool:
    return not redaction_rules_by_context.is_placeholder(part) and (
        not hook.must_look_random or redaction_rules_by_context.looks_random(part)
    )


def _make_rule(name: str, hooks: Sequence[_WebhookPattern], hint: str) -> RedactionRule:
    examples = [hook.example for hook in hooks]
    return RedactionRule(
        name, partial(_find_webhooks, hooks), *examples, hint=hint, is_caseless=True
    )


WEBHOOK_RULES = (
    _make_rule(
        "webhook", [h for h in WEBHOOKS if "hook" in h.hint], "hook"
    ),  # one search for all of them
    *(_make_rule(f"webhook of {h.service}", [h], h.hint) for h in WEBHOOKS if "hook" not in h.hint),
)


def redact(text: str) -> str:
    """Replace keys and the values of the environment's secrets in a text by `REDACTION_MARK`."""
    return mask_spans(text, find_secret_spans(text, get_environment_secrets()))


def redact_json(value: Any, secrets: Sequence[str] | None = None) -> Any:
    """Redact every text and every key of an object in a JSON value.

    A text under a secret's key (`{"password": ...}`) is redacted like a text beside such a name.

    Args:
        value: texts, numbers, lists and objects.
        secrets: result of `get_environment_secrets`, if many values are redacted in a row.
    """
    return _redact_value(value, get_environment_secrets() if secrets is None else secrets, {})


_MAX_CACHED_CHARS = 400
_MAX_CACHED_TEXTS = 10_000
"""Short texts, such as keys, names of models and notes, recur in the rows of a table."""


def _redact_value(value: Any, secrets: Sequence[str], cache: dict[str, str]) -> Any:
    if isinstance(value, str):
        redacted = cache.get(value)
        if redacted is None:
            redacted = mask_spans(value, find_secret_spans(value, secrets))
            if len(value) <= _MAX_CACHED_CHARS:
                if len(cache) >= _MAX_CACHED_TEXTS:
                    cache.clear()  # of ids that do not recur; what recurs is soon there again
                cache[value] = redacted
        return redacted
    if isinstance(value, dict):
        return {
            _redact_value(k, secrets, cache): REDACTION_MARK
            if isinstance(v, str) and is_secret_field(k, v)
            else _redact_value(v, secrets, cache)
            for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_redact_value(v, secrets, cache) for v in value]
    return value


# Redaction of a stream.
#
# State: the text that may still matter, how much of its beginning was emitted, and whether a secret
# was cut by a forced emission. A piece is appended, and text is emitted up to the first position
# at which a coming character can still change a secret: the last word, an open quotation after a
# secret's name, a seed phrase, a block of a private key, or the start of an environment secret with
# spaces. Emitted text stays as context for a while, as the name of a secret may be there.
# Invariant: the emitted pieces join to what `redact` returns for the whole text, except within
# words and blocks longer than the two bounds. Cost: O(context + piece) per piece.

_CONTEXT_CHARS = 400
"""Emitted characters that are searched again, for the name before a secret."""
_MAX_WORD_CHARS = 4_096
"""Characters of an unfinished word that are held back at most."""
_MAX_BLOCK_CHARS = 16_384
"""Characters of an unfinished block of a private key that are held back at most."""
_OPEN_QUOTED_SECRET = re.compile(
    r"(?i)(?:pass|pwd|secret|token|key|auth|credential)[\w-]{0,30}\W{0,8}[\"'`][^\"'`\n]{0,300}\Z"
)
"""A secret's name and an open quotation, in which the value may have spaces."""
_OPEN_SEED_PHRASE = re.compile(
    r"(?i)(?:mnemonic|(?:seed|recovery)[ _]phrase)[\\\"'`:= \t]{1,12}(?:[a-z]{3,8}"
    r" ){0,24}[a-z]{0,8}\Z"
)
"""The beginning of a wallet's seed phrase."""
_REST_OF_WORD = re.compile(r"[\w+/=.~%-]*")


class StreamRedactor:
    """Redacts a text that arrives in pieces.

    The emitted pieces join to what `redact` returns for the whole text, except within words longer
    than 4,096 characters and blocks longer than 16,384. The last word is always held back, so
    output is one word late.

    Args:
        secrets: result of `get_environment_secrets`; None: it is computed.
    """

    def __init__(self, secrets: Sequence[str] | None = None) -> None:
        self._secrets = get_environment_secrets() if secrets is None else secrets
        self._secrets_with_spaces = [v for v in self._secrets if any(map(str.isspace, v))]
        self._text = ""
        self._emitted = 0
        """Characters of the text that are emitted."""
        self._is_inside_secret = False
        """True where a forced emission ended in a secret: the rest of the word belongs to it."""

    def feed(self, piece: str) -> str:
        """Add a piece; return the text that can be emitted now."""
        self._text += piece
        return self._emit_to(self._find_settled_end())

    def flush(self) -> str:
        """Return the rest at the end of the text."""
        return self._emit_to(len(self._text))

    def _find_settled_end(self) -> int:
        """Return the position up to which no coming character can change what is a secret."""
        last_word = _find_last_word(self._text)
        if len(self._text) - last_word > _MAX_WORD_CHARS:
            return len(self._text)  # not settled, but too long to be held back
        view = TextWithoutHiddenCharacters(self._text)
        text, context_start = view.text, max(len(view.text) - _CONTEXT_CHARS, 0)
        ends = [
            match.start()
            for pattern in (_OPEN_QUOTED_SECRET, _OPEN_SEED_PHRASE)
            if (match := pattern.search(text, context_start))
        ]
        block = redaction_rules_for_vendor_and_private_keys.find_unfinished_key_block(text)
        if block is not None and len(text) - block <= _MAX_BLOCK_CHARS:
            ends.append(block)
        started = (_count_started(text, secret) for secret in self._secrets_with_spaces)
        ends += [len(text) - n for n in started if n]
        return max(min([last_word, *map(view.origin, ends)]), self._emitted)

    def _emit_to(self, end: int) -> str:
        out, at = [], self._emitted
        if self._is_inside_secret and at < len(self._text):
            word = _REST_OF_WORD.match(self._text, at)
            at = min(word.end(), end) if word else at
            self._is_inside_secret = at == len(self._text)
        if end <= at:
            self._emitted = max(at, self._emitted)
            return ""
        is_forced = end - at >= _MAX_WORD_CHARS
        for start, stop in find_secret_spans(self._text, self._secrets):
            if stop <= at or start >= end:
                continue
            out += [self._text[at : max(start, at)], REDACTION_MARK]
            at = stop
            self._is_inside_secret = is_forced and stop == len(self._text)
        out.append(self._text[at:end])
        self._emitted = max(at, end)
        self._drop_old_text()
        return "".join(out)

    def _drop_old_text(self) -> None:
        """Remove emitted text that is no context of coming text, in whole words if possible."""
        end = max(self._emitted - _CONTEXT_CHARS, 0)
        n = _find_last_word(self._text[:end]) or (end if end > _MAX_WORD_CHARS else 0)
        self._text, self._emitted = self._text[n:], self._emitted - n


def _find_last_word(text: str) -> int:
    """Return the start of the last word of a text; spaces after it on its line belong to it."""
    end = len(text.rstrip(" \t"))
    return max(text.rfind(c, 0, end) for c in " \t\n\r") + 1


def _count_started(text: str, value: str) -> int:
    """Return how many characters at the end of a text are the beginning of a value."""
    for n in range(min(len(value) - 1, len(text)), 0, -1):
        if text.endswith(value[:n]):
            return n
    return 0


REDACTION_MARK = "[redacted]"
RULES = (
    *redaction_rules_for_vendor_and_private_keys.KEY_BLOCK_RULES,
    *redaction_rules_for_vendor_and_private_keys.SECRET_PATTERN_RULES,
    *WEBHOOK_RULES,
    *redaction_rules_by_context.NAMED_SECRET_RULES,
    *redaction_rules_by_context.ADDRESS_RULES,
)
"""All rules for secrets that are not in the environment."""


class _RulesByHint:
    """Rules by their hints: a rule searches only texts that contain its hint."""

    MAX_INDEXED_CHARS = 1_000
    """Characters of a text that is searched for all hints at once; for each in a longer one, as
    that takes less time than the list of all occurrences.
    """

    def __init__(self, rules: Iterable[RedactionRule]) -> None:
        self._by_hint: dict[str, list[Callable[[TextWithoutHiddenCharacters], Iterable[Span]]]] = {}
        for rule in rules:
            self._by_hint.setdefault(rule.hint, []).append(rule.find)
        self._always = self._by_hint.pop("", [])
        self._hints = list(self._by_hint)

    @cached_property
    def _index(self) -> Callable[..., list[tuple[int, int, int]]]:
        from ahocorasick_rs import AhoCorasick  # only where a text is redacted

        return AhoCorasick(self._hints).find_matches_as_indexes

    def find_in(self, view: TextWithoutHiddenCharacters, text: str) -> Iterator[Span]:
        """Yield the spans of the rules whose hint is in `text`, a form of a visible text."""
        if len(text) <= self.MAX_INDEXED_CHARS and text.isascii():
            numbers = {number for number, _, _ in self._index(text, overlapping=True)}
            hints = [self._hints[number] for number in numbers]
        else:
            hints = [hint for hint in self._hints if hint in text]
        for find in self._always:
            yield from find(view)
        for hint in hints:
            for find in self._by_hint[hint]:
                yield from find(view)


# Hints are searched in the visible text, or in its lower case where case does not matter.
_CASED = _RulesByHint(r for r in RULES if not r.is_caseless)
_CASELESS = _RulesByHint(r for r in RULES if r.is_caseless)


def find_secret_spans(text: str, secrets: Sequence[str]) -> list[Span]:
    """Return the disjoint spans of secrets in a text, in order.

    Args:
        text: the text, which may hold hidden characters.
        secrets: values of the environment that are secret wherever they stand.

    Returns:
        Half-open spans of characters.
    """
    view = TextWithoutHiddenCharacters(text)
    spans = list(_find_values(view, secrets))
    spans.extend(_CASED.find_in(view, view.text))
    spans.extend(_CASELESS.find_in(view, view.low))
    if view.is_changed:
        spans = [view.original_span(span) for span in spans]
        spans.extend(_find_in_strings(text, view.strings, secrets))
    return _merge_spans(sorted(spans))


def _find_in_strings(text: str, strings: Sequence[Span], secrets: Sequence[str]) -> Iterator[Span]:
    """Yield the spans of secrets in the strings of escape sequences, such as addresses of links."""
    offsets: list[int] = []
    pieces: list[str] = []
    size = 0
    for start, end in strings:
        offsets.append(size)
        pieces.append(text[start:end])
        size += end - start + 1
    for a, b in find_secret_spans("\n".join(pieces), secrets) if pieces else ():
        i = bisect_right(offsets, a) - 1
        start, end = strings[i]
        yield start + a - offsets[i], min(start + b - offsets[i], end)


def _find_values(view: TextWithoutHiddenCharacters, values: Sequence[str]) -> Iterator[Span]:
    text = view.text
    for value in values:
        at = text.find(value)
        while at >= 0:
            end = at + len(value)
            if len(value) >= MIN_CHARS_IN_WORDS or (view.is_edge(at) and view.is_edge(end)):
                yield at, end
            at = text.find(value, end)


def _merge_spans(spans: list[Span]) -> list[Span]:
    """Return the union of sorted spans."""
    out: list[Span] = []
    for start, end in spans:
        if out and start < out[-1][1]:
            out[-1] = out[-1][0], max(end, out[-1][1])
        else:
            out.append((start, end))
    return out


def mask_spans(text: str, spans: Sequence[Span]) -> str:
    """Return the text with each span replaced by `REDACTION_MARK`.

    Args:
        text: the text.
        spans: disjoint half-open spans of characters, in order.
    """
    if not spans:
        return text
    out, at = [], 0
    for start, end in spans:
        out += [text[at:start], REDACTION_MARK]
        at = end
    return "".join([*out, text[at:]])
