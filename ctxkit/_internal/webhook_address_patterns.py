"""Redaction rules for webhook addresses, which grant access to whoever has them.

The forms are those of the services' manuals. Only the part that grants access is redacted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ctxkit._internal import secret_heuristics
from ctxkit._internal.redaction_rule import RedactionRule, compile_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit._internal.visible_text import Span, VisibleText


class WebhookPattern(NamedTuple):
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
    WebhookPattern(
        "Slack", "hooks.slack", r"(?:-gov)?\.com/(?:services|workflows|triggers)/",
        r"(?:\w{3,}+/){2,3}+\w{8,}+", "https://hooks.slack.com/services/«T0{u7}/B0{u9}/{a24}»",
    ),
    WebhookPattern(
        "Slack, without its host", "services", "/", r"T\w{6,}+/B\w{6,}+/\w{16,}+",
        "x/services/«T0{u7}/B0{u9}/{a24}»",
    ),
    WebhookPattern(
        "Discord", "webhooks", "/", r"\d{10,}+/[\w-]{30,}+",
        "https://discord.com/api/webhooks/«{d18}/{w67}z»",
    ),
    WebhookPattern(
        "Teams", "webhook", "(?:b2)?/", rf"{_UUID}@{_UUID}(?:/[\w-]{{1,50}}+){{1,4}}+",
        f"https://x.webhook.office.com/webhookb2/«{_RANDOM_UUID}@{_RANDOM_UUID}/Hook/{{h32}}/x»",
    ),
    WebhookPattern(
        "Mattermost", "hooks", "/", r"[a-z0-9]{26}(?![\w-])",
        "https://chat.example.com/hooks/«{s26}»", must_look_random=True,
    ),
    WebhookPattern(
        "Rocket.Chat", "hooks", "/", r"[a-z0-9]{17,24}/[a-z0-9]{40,64}(?![\w-])",
        "https://chat.example.com/hooks/«{a24}/{a48}»", must_look_random=True,
    ),
    WebhookPattern(
        "Zapier", "hooks.zapier.com", r"/hooks/\w{1,20}/", r"(?:v\d/)?\d{3,}+/\w{4,}+",
        "https://hooks.zapier.com/hooks/catch/«{d7}/{s7}»/",
    ),
    WebhookPattern(
        "Make", "hook.", r"(?:[a-z]{2}\d\.make|integromat)\.com/", "[a-z0-9]{20,}+",
        "https://hook.eu1.make.com/«{s32}»",
    ),
    WebhookPattern(
        "Netlify", "build_hooks", "/", "[0-9a-f]{16,}+",
        "https://api.netlify.com/build_hooks/«{h24}»",
    ),
    WebhookPattern(
        "WeCom", "webhook", r"/send\?key=", _UUID,
        f"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=«{_RANDOM_UUID}»",
    ),
    WebhookPattern(
        "IFTTT", "maker.ifttt.com", r"/(?:use|trigger/[\w{}.-]{1,100}+(?:/json)?/with/key)/",
        r"[\w-]{10,}+", "https://maker.ifttt.com/trigger/opened/with/key/«{w43}»",
    ),
    WebhookPattern(
        "Google Chat", "chat.googleapis.com", r"/v\d(?:\w|/){1,200}+\?[^\s\"']{0,300}?token=",
        r"[\w.%~+-]{16,}+",
        "https://chat.googleapis.com/v1/spaces/AAAA{a7}/messages?key=K&token=«{w43}%3D»",
    ),
    WebhookPattern(
        "Feishu", "open-apis", "/bot/(?:v2/)?hook/", r"[\w-]{16,}+",
        f"https://open.feishu.cn/open-apis/bot/v2/hook/«{_RANDOM_UUID}»",
    ),
    WebhookPattern(
        "PagerDuty", "events.pagerduty.com", "/integration/", "[0-9a-f]{32}",
        "https://events.pagerduty.com/integration/«{h32}»/enqueue",
    ),
    WebhookPattern(
        "Vercel", "api.vercel.com", r"/v\d+/integrations/deploy/", r"[\w-]{8,}+/[\w-]{8,}+",
        "https://api.vercel.com/v1/integrations/deploy/«prj_{a24}/{a10}»",
    ),
    WebhookPattern(
        "Webex", "webexapis.com", r"/v\d+/webhooks/incoming/", r"[\w-]{20,}+",
        "https://webexapis.com/v1/webhooks/incoming/«{a80}»",
    ),
)  # fmt: skip


def _find_webhooks(hooks: Sequence[WebhookPattern], view: VisibleText) -> Iterator[Span]:
    for hook in hooks:
        at = view.low.find(hook.hint)
        while at >= 0:
            at += len(hook.hint)
            form = f"(?i){hook.between}({hook.secret})".replace("/", _SLASH)
            hit = view.match(compile_once(form), at)
            if hit and _is_secret(hook, hit[1]):
                yield hit.span(1)
            at = view.low.find(hook.hint, hit.end() if hit else at)


def _is_secret(hook: WebhookPattern, part: str) -> bool:
    return not secret_heuristics.is_placeholder(part) and (
        not hook.must_look_random or secret_heuristics.looks_random(part)
    )


def _make_rule(name: str, hooks: Sequence[WebhookPattern], hint: str) -> RedactionRule:
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
