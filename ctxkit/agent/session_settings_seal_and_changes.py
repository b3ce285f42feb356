"""Settings stored with a session, and compared with the current ones when it is resumed."""

# The settings are sealed: the seal is an HMAC by the user's own key over the settings and the
# session's id. A session from elsewhere may carry any settings; without a valid seal they are
# ignored.

from __future__ import annotations

import json
import re
from dataclasses import asdict, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ctxkit._internal.environment_secrets import get_environment_secrets
from ctxkit._internal.redaction import redact_json
from ctxkit.agent.ctxkit_folder_and_session_trust import make_seal, verify_seal
from ctxkit.agent.turn_limits_and_token_budgets import Limits
from ctxkit.errors import BadArguments, StoreError
from ctxkit.session.messages import Message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.agent.models.model import Model
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.session.session import Session

SETTINGS_KEY = "signed_settings"
"""Key of the settings in `Session.details`."""
_SCRIPT_PREFIX = "scripted"
_MAX_RULES_CHARS = 4000


class SignedSessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a session."""

    words: dict[str, Any] = {}
    """How the user named each part: model, summary_model, rules, tools, root, allow, ..."""
    rules: str = ""
    """The rules in full, as their name may mean other rules in another kernel."""
    limits: dict[str, Any] = {}
    """Limits of a turn that differ from the defaults."""
    seal: str = ""
    """HMAC over all of the above and the session's id; empty if there was no key."""

    def sealed_for(self, session: str) -> SignedSessionSettings:
        """Return the settings with this user's seal; without one if the user has no key."""
        bare = replace(self, seal="")
        try:
            return replace(bare, seal=make_seal(_sealed_text(bare, session)))
        except StoreError:
            return bare

    def is_mine(self, session: str) -> bool:
        """Return whether this user sealed the settings for this session."""
        return bool(self.seal) and verify_seal(
            _sealed_text(replace(self, seal=""), session), self.seal
        )


def make_unsealed_session_settings(
    words: Mapping[str, Any], rules: Rules, limits: Limits
) -> SignedSessionSettings:
    """Return the settings of a session, redacted and not sealed.

    Args:
        words: how the user named model, rules, tools and root.
        rules: the rules; their text is stored, without addresses of objects.
        limits: limits of a turn; only those that differ from the defaults are stored.

    Returns:
        The settings; secrets of the environment are replaced in all texts.
    """
    defaults = Limits()
    changed_limits = {k: v for k, v in asdict(limits).items() if v != getattr(defaults, k)}
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(rules))  # addresses differ from run to run
    clean = json.loads(
        _redact_encoded(json.dumps([dict(words), text]), tuple(get_environment_secrets()))
    )
    return SignedSessionSettings(
        words=clean[0], rules=clean[1][:_MAX_RULES_CHARS], limits=changed_limits
    )


def read_session_settings(session: Session | None) -> SignedSessionSettings | None:
    """Return the settings stored in a session; None if there are none or the seal is not valid.

    Args:
        session: session stored in `.ctxkit/sessions`; None: a session that does not exist yet.

    Returns:
        The settings, only if this user sealed them for this session: a copied or edited file gives
        None.
    """
    stored = session.details.get(SETTINGS_KEY) if session is not None else None
    if session is None or stored is None:
        return None
    try:
        settings = msgspec.convert(stored, SignedSessionSettings)
    except msgspec.ValidationError:
        return None
    return settings if settings.is_mine(session.id) else None


def restore_limits(settings: SignedSessionSettings | None) -> Limits:
    """Return the stored limits of a turn, else the defaults.

    Args:
        settings: settings of the session; None: there are none under this user's seal.

    Returns:
        The limits; values that are not valid any more give the defaults.
    """
    limit_names = {f.name for f in fields(Limits)}
    try:
        return Limits(
            **{k: v for k, v in (settings.limits if settings else {}).items() if k in limit_names}
        )
    except (BadArguments, TypeError):
        return Limits()


def with_session_settings(session: Session, settings: SignedSessionSettings) -> Session:
    """Return a session with its settings sealed in the details.

    Args:
        session: its details are replaced, nothing else.
        settings: as `make_unsealed_session_settings` makes them.

    Returns:
        The session; the seal is bound to its id and to this user's key.
    """
    sealed = msgspec.to_builtins(settings.sealed_for(session.id))
    return replace(session, details={**session.details, SETTINGS_KEY: sealed})


def list_answering_models(session: Session | None) -> tuple[str, ...]:
    """Return the models that answered in a session, in order; failed calls do not count."""
    entries = session.log if session is not None else ()
    replies = (e for e in entries if isinstance(e, Message) and e.role == "assistant")
    return tuple(dict.fromkeys(r.model for r in replies if r.model and not r.error))


def refuse_scripted_model_after_real(session: Session | None, model: Model, name: str) -> None:
    """Refuse a scripted model for a session in which a real model has answered.

    Args:
        session: the session to continue; None: a new one.
        model: that would continue it.
        name: name of the session, for the error's sentence.

    Raises:
        BadArguments: a script would write invented turns into a conversation with a model.
    """
    real = [w for w in list_answering_models(session) if not w.startswith(_SCRIPT_PREFIX)]
    if real and model.notice.startswith(_SCRIPT_PREFIX):
        raise BadArguments(
            f"Session {name!r} is a conversation with {real[-1]}, and {model.name} would write "
            f"invented turns into it: name a model, for instance `%%agent --session {name} --model "
            f"{real[-1]}`, or begin another session."
        )


def describe_settings_changes(
    session: Session,
    before: SignedSessionSettings | None,
    after: SignedSessionSettings,
    model: Model,
) -> list[str]:
    """Return sentences on what differs between the stored settings and the current ones.

    Args:
        session: that is resumed.
        before: settings stored in it; None: none under this user's seal.
        after: settings with which it is opened.
        model: that answers from now on.

    Returns:
        Notes for the user: a model after a script, missing settings, and each value that changed.
    """
    answered = list_answering_models(session)
    notes = []
    if (
        answered
        and answered[-1].startswith(_SCRIPT_PREFIX)
        and not model.notice.startswith(_SCRIPT_PREFIX)
    ):
        notes.append(f"Note: a script wrote what was answered so far ({answered[-1]}); from here "
                     f"on {model.name} answers.")  # fmt: skip
    if before is None:
        if session.log:
            notes.append("Note: the session holds no settings that you have sealed: what is not "
                         "named now is as for a new session.")  # fmt: skip
        return notes
    for key, value in after.words.items():
        was = before.words.get(key)
        # The name of an agent of another program is known once it runs.
        is_unnamed_agent = key == "model" and not was and after.words.get("via")
        if was is not None and was != value and not is_unnamed_agent:
            notes.append(
                f"Note: {key.replace('_', ' ')}: {was or 'none'} before, {value or 'none'} "
                "from here on."
            )
    if before.rules != after.rules and before.words.get("rules") == after.words.get("rules"):
        notes.append(f"Note: its rules have the same name as before ({after.words.get('rules')}), "
                     "but they have changed.")  # fmt: skip
    return notes


def describe_tool_changes(before: Session, after: Session) -> list[str]:
    """Return a sentence on tools that are new, gone or changed; an empty list if there are none.

    Args:
        before: the session as it was stored.
        after: the session with the tools that it has from now on.

    Returns:
        At most one sentence; it names the tools.
    """
    old, new = ({t.name: t for t in s.tools} for s in (before, after))
    changes = {
        "gone": [n for n in old if n not in new],
        "new": [n for n in new if n not in old],
        "described otherwise": [n for n in new if n in old and new[n] != old[n]],
    }
    phrases = [f"{', '.join(names)} ({how})" for how, names in changes.items() if names]
    return [f"Note: its tools are not those it had: {'; '.join(phrases)}."] if phrases else []


@lru_cache(64)
def _redact_encoded(encoded: str, secrets: tuple[str, ...]) -> str:
    """Return encoded JSON redacted; cached, as the agents of a team often have equal settings."""
    return json.dumps(redact_json(json.loads(encoded), secrets))


def _sealed_text(settings: SignedSessionSettings, session: str) -> str:
    return msgspec.json.encode([session, settings], order="deterministic").decode()
