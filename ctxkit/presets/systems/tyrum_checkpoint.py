"""Tyrum's checkpoint of goals, open work and approvals, with its audit."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments, ModelError, did_you_mean
from ctxkit.policies import lesson_extraction_and_recall
from ctxkit.policies.offline_summarisers import with_summary_error
from ctxkit.policies.texts import message_content_and_truncation, summary_prompts_and_audits
from ctxkit.session.messages import (
    APPROVAL_DECISIONS,
    APPROVAL_KEY,
    INJECTED_KIND,
    RECALLED_KIND,
    Message,
    Text,
    get_plain_text,
)
from ctxkit.tokens.message_token_counting import encode_arguments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ctxkit.policies.offline_summarisers import SummariserInput


TYRUM_FIELDS = (
    "goal",
    "user_constraints",
    "decisions",
    "discoveries",
    "completed_work",
    "pending_work",
    "unresolved_questions",
    "critical_identifiers",
    "relevant_files",
    "handoff_md",
)
INSTRUCTIONS = (
    "Write an internal checkpoint for another run of the same agent; do not answer the user. Prefer"
    " facts, exact identifiers, decisions, constraints, pending work and open questions; invent"
    " nothing; where statements conflict, take the newer one with evidence. Answer in JSON only,"
    " with the fields " + ", ".join(TYRUM_FIELDS) + "."
)


# A model is asked for a checkpoint at most `attempts` times. Where there is none, or each attempt
# fails, the deterministic checkpoint takes its place, so that no compaction fails for want of a
# summary. Approvals are merged in afterwards from the messages.
# The fields are kept in `details`, from where the next compaction reads them; only the text is
# sent.
@dataclass(frozen=True, kw_only=True)
class CheckpointSummariser:
    """Writes Tyrum's checkpoint: by a model in at most two attempts, else without one."""

    model: Any = None
    """``(passage) -> text`` that answers in JSON; None: the deterministic checkpoint at once."""
    attempts: int = 2
    """Maximum number of calls of the model."""
    quirks: bool = False
    """Find only inner parts of paths, and audit nothing."""
    name = "tyrum"

    @property
    def needs_model(self) -> bool:
        """True where a function was given that may ask a model."""
        return self.model is not None

    def __post_init__(self) -> None:
        if self.model is not None and not callable(self.model):
            raise BadArguments(
                f"The summariser of tyrum is called with a passage and answers in JSON;"
                f" {self.model!r:.80} cannot be."
            )

    def __call__(self, passage: SummariserInput) -> Message:
        """Return the checkpoint as a message of role `summary`, its fields in `details`."""
        point, why, previous = None, "", _previous_checkpoint(passage)
        if self.model is not None:
            point, why = self._ask_model(passage, previous)
        if point is None:
            point = make_checkpoint_without_model(passage.messages, previous, quirks=self.quirks)
        point = add_approvals(point, passage.messages, previous)
        pending = [m for m in passage.history.messages if m.pending]
        fields = {k: v for k, v in vars(point).items() if v}
        message = Message(
            role="summary",
            id=f"checkpoint-{passage.messages[-1].id}" if passage.messages else "",
            parts=(Text(render_checkpoint(point, pending)),),
            details={"checkpoint": fields},
        )
        return with_summary_error(message, why) if why else message

    def _ask_model(
        self, passage: SummariserInput, previous: TyrumCheckpoint | None
    ) -> tuple[TyrumCheckpoint | None, str]:
        """Return the model's checkpoint; None where it fails twice, and why the last one did."""
        transcript = "\n".join(
            summary_prompts_and_audits.get_text_without_reasoning(m) for m in passage.messages
        )
        texts = [
            t for m in passage.messages for t in (m.text, *map(encode_arguments, m.tool_calls))
        ]
        # what a checkpoint may name: all other identifiers in it count as invented
        source_text = "\n".join(
            [transcript, *texts, _checkpoint_words(previous), passage.instructions]
        )
        names = summary_prompts_and_audits.find_identifiers(transcript, inner_paths=self.quirks)
        obligations = (
            () if self.quirks else list_required_checkpoint_lines(passage.messages, previous)
        )
        instructions = (
            f"{INSTRUCTIONS}\n\nKeep:"
            f" {', '.join(names)}\n\n{_ask_for_obligations(obligations)}{passage.instructions}\n\n"
            f"{write_tyrum_transcript(passage.messages)}"
        )
        lack: tuple[str, ...] = ()
        why = ""
        # Each attempt is audited: fields must be valid; identifiers, obligations, decisions and
        # approvals must be neither lost nor invented. The next attempt is told what was wrong.
        for _ in range(self.attempts):
            again = (
                instructions
                if not lack
                else f"{instructions}\n\nThe last attempt lacked: {', '.join(lack)}."
            )
            try:
                point = parse_checkpoint(
                    json.loads(str(self.model(replace(passage, instructions=again))))
                )
            except (ModelError, BadArguments, ValueError, AttributeError) as error:
                lack, why = (f"valid JSON ({error})",), str(error)
                continue
            lack = ("anything at all",) if point.is_empty else ()
            if not self.quirks:
                point = replace(point, handoff_md=shorten_handoff(point.handoff_md))
            if not lack and not self.quirks:
                lack = summary_prompts_and_audits.find_lost_identifiers(
                    names, _checkpoint_words(point)
                )
                invented = summary_prompts_and_audits.find_invented_identifiers(
                    _checkpoint_words(point), source_text
                )
                invented += _find_invented_statements(point, passage, previous)
                lack += (f"any ground for {', '.join(invented)}",) if invented else ()
                lack += find_lost_lines(obligations, _checkpoint_words(point))
            if not lack:
                return point, ""
            why = f"the checkpoint lacked {', '.join(lack)}"
        return None, why


def list_required_checkpoint_lines(
    messages: Sequence[Message], previous: TyrumCheckpoint | None = None
) -> tuple[str, ...]:
    """Return the lines of the deterministic checkpoint that one of a model has to hold.

    They are the user's constraints and preferences, the decisions and what is not done yet.
    """
    point = make_checkpoint_without_model(messages, previous)
    pending = [*(previous or TyrumCheckpoint()).pending_work, *_find_pending_work(messages)]
    constraints = [*(previous or TyrumCheckpoint()).user_constraints, *point.preferences]
    return tuple(dict.fromkeys([*constraints, *point.decisions, *map(shorten_to_line, pending)]))


_PENDING_WORK = re.compile(
    r"(?<!\w)(?:to ?do|still (?:to|owe|open|missing|need)\w*|not (?:done|finished)|pending"
    r"|outstanding|owed?|remains? to|left to do|later we|before (?:the )?release|next:)(?!\w)",
    re.IGNORECASE,
)


def _find_pending_work(messages: Sequence[Message]) -> list[str]:
    """Return the sentences of both sides that say what is not done yet."""
    return [
        s
        for m in messages
        if m.role in ("user", "assistant")
        for s in split_statements(_message_words(m))
        if _PENDING_WORK.search(s)
    ]


def _ask_for_obligations(obligations: Sequence[str]) -> str:
    if not obligations:
        return ""
    rows = "\n".join(f"- {row}" for row in obligations)
    return f"Each of these stays in its field, with its words:\n{rows}\n\n"


def _find_invented_statements(
    point: TyrumCheckpoint, passage: SummariserInput, previous: TyrumCheckpoint | None
) -> tuple[str, ...]:
    """Return the decisions and approvals of a model's checkpoint that nobody made."""
    spoken = [
        _message_words(m) for m in passage.messages if m.role in ("user", "assistant", "system")
    ]
    sources = [*spoken, _checkpoint_words(previous), passage.instructions]
    user = [_message_words(m) for m in passage.messages if m.role == "user"]
    approved = add_approvals(TyrumCheckpoint(), passage.messages, previous).approvals
    words = _checkpoint_words(replace(point, handoff_md=""))
    return (
        *find_invented_decisions(point.decisions, sources),
        *find_invented_approvals(
            [words, point.handoff_md],
            [*user, _checkpoint_words(previous), passage.instructions],
            approved,
        ),
    )


def _checkpoint_words(point: TyrumCheckpoint | None) -> str:
    """Return all texts of a checkpoint."""
    values = () if point is None else vars(point).values()
    return "\n".join(v if isinstance(v, str) else "\n".join(v) for v in values)


def _previous_checkpoint(passage: SummariserInput) -> TyrumCheckpoint | None:
    summary = passage.previous
    data = None if summary is None else summary.details.get("checkpoint")
    return parse_checkpoint(data) if isinstance(data, dict) else None


MAX_LIST_LINES = 40
"""Lines of a list that grows from one checkpoint to the next."""
MAX_LINE_CHARS = 240
"""Characters of one line of a deterministic checkpoint."""
MAX_HANDOFF_CHARS = 8_000
"""Characters of a handoff that go on to the next checkpoint, the newest ones."""
HANDOFF_CUT_NOTE = "(earlier lines left out)\n"


@dataclass(frozen=True, kw_only=True)
class TyrumCheckpoint:
    """What another run of the same agent must know to continue."""

    goal: str = ""
    user_constraints: tuple[str, ...] = ()
    preferences: tuple[str, ...] = ()
    """What the user said of how it is to be (Tyrum's document; its program has no such list)."""
    approvals: tuple[str, ...] = ()
    """What the user allowed and refused: never left to a model."""
    decisions: tuple[str, ...] = ()
    discoveries: tuple[str, ...] = ()
    completed_work: tuple[str, ...] = ()
    pending_work: tuple[str, ...] = ()
    unresolved_questions: tuple[str, ...] = ()
    critical_identifiers: tuple[str, ...] = ()
    relevant_files: tuple[str, ...] = ()
    handoff_md: str = ""

    @property
    def is_empty(self) -> bool:
        """True where all fields are empty."""
        return not any(getattr(self, f.name) for f in fields(self))


def parse_checkpoint(data: Mapping[str, object]) -> TyrumCheckpoint:
    """Return a checkpoint from decoded JSON.

    Raises:
        BadArguments: a key is unknown, or a value is not text or a list of text.
    """
    fields_by_name = {f.name: f for f in fields(TyrumCheckpoint)}
    out: dict[str, str | tuple[str, ...]] = {}
    for key, value in data.items():
        if key not in fields_by_name:
            raise BadArguments(
                f"A checkpoint has no field {key!r}.{did_you_mean(key, fields_by_name)}"
            )
        if isinstance(value, str):
            # a single text in place of a list is a list of one
            out[key] = value if isinstance(fields_by_name[key].default, str) else (value,)
        elif isinstance(value, (list, tuple)) and isinstance(fields_by_name[key].default, tuple):
            out[key] = tuple(str(v) for v in value)
        else:
            raise BadArguments(f"Field {key!r} of a checkpoint must be text or a list of text.")
    return TyrumCheckpoint(**out)  # type: ignore[arg-type]


def shorten_to_line(text: str) -> str:
    """Return a text on one line of at most 240 characters (237 and three dots)."""
    flat = " ".join(
        text.split(None, MAX_LINE_CHARS)[:MAX_LINE_CHARS]
    )  # no more of a long text is read than is shown
    return flat if len(flat) <= MAX_LINE_CHARS else flat[: MAX_LINE_CHARS - 3] + "..."


def list_unique_lines(rows: Iterable[str], limit: int) -> tuple[str, ...]:
    """Return lines, each once whatever its case, empty ones left out, at most `limit`."""
    seen: dict[str, str] = {}
    for row in map(shorten_to_line, rows):
        if row:
            seen.setdefault(row.casefold(), row)
    return tuple(seen.values())[:limit]


# The deterministic checkpoint extends the lists of the checkpoint before it: the first three
# requests and the system's words are constraints, the first six replies discoveries, the last two
# of each side pending work. Lines are cut to 240 characters and compared in lower case; a full list
# takes no more, so that older lines win. All lists are bounded. `handoff_md` grows by at most 14
# lines with each compaction, and its newest end is kept; the program's is not bounded.
def make_checkpoint_without_model(
    messages: Sequence[Message], previous: TyrumCheckpoint | None = None, *, quirks: bool = False
) -> TyrumCheckpoint:
    """Return the checkpoint that is made when no model answers: the first and last words of each
    side.

    Args:
        messages: what is about to leave the view.
        previous: the checkpoint that came before.
        quirks: find only the inner part of a path, and keep all of the handoff, as Tyrum's program
            does.
    """
    old = previous or TyrumCheckpoint()
    lines = [(m.role, shorten_to_line(_message_words(m))) for m in messages]
    user = [t for role, t in lines if role == "user" and t]
    agent = [t for role, t in lines if role == "assistant" and t]
    system = [t for role, t in lines if role == "system" and t]
    names = summary_prompts_and_audits.find_identifiers(
        "\n".join(map(_message_words, messages)), inner_paths=quirks
    )
    recent = list_unique_lines([*user[-2:], *agent[-2:]], 8)
    history = list_unique_lines((f"{role}: {text}" for role, text in lines if text), 8)
    parts = [old.handoff_md] if old.handoff_md else []
    parts += ["Compacted history:", *(f"- {h}" for h in history)] if history else []
    parts += ["Continue with:", *(f"- {p}" for p in recent)] if recent else []
    handoff = "\n".join(parts)
    return replace(
        add_approvals(old, messages, old),
        preferences=list_unique_lines(
            [*old.preferences, *lesson_extraction_and_recall.extract_preferences(messages)],
            MAX_LIST_LINES,
        ),
        decisions=list_unique_lines(
            [*old.decisions, *lesson_extraction_and_recall.extract_decisions(messages)],
            MAX_LIST_LINES,
        ),
        goal=shorten_to_line(old.goal or (user or agent or ["Go on with the conversation."])[0]),
        user_constraints=list_unique_lines([*old.user_constraints, *user[:3], *system], 8),
        discoveries=list_unique_lines([*old.discoveries, *agent[:6]], 8),
        pending_work=list_unique_lines([*old.pending_work, *recent], 8),
        critical_identifiers=tuple(dict.fromkeys([*old.critical_identifiers, *names]))[:50],
        relevant_files=tuple(
            dict.fromkeys(
                [*old.relevant_files, *summary_prompts_and_audits.select_file_identifiers(names)]
            )
        )[:20],
        handoff_md=handoff if quirks else shorten_handoff(handoff),
    )


def shorten_handoff(text: str) -> str:
    """Return the newest whole lines of a handoff, at most 8,000 characters."""
    if len(text) <= MAX_HANDOFF_CHARS:
        return text
    newest = text[-MAX_HANDOFF_CHARS:]
    return HANDOFF_CUT_NOTE + newest[newest.find("\n") + 1 :]


_BLOCKS_OF_THE_KIT = frozenset({"memory", "runtime", "time", "gitignore", "store"})
"""Sections about the session, which nobody wrote."""


def _message_words(message: Message) -> str:
    """Return what user, agent or system said, without what was put in about the session."""
    if message.kind in (INJECTED_KIND, RECALLED_KIND) and message.role == "user":
        return ""
    if message.sections:
        blocks = (t for name, t, _ in message.sections if name not in _BLOCKS_OF_THE_KIT)
        return "\n".join(filter(None, blocks))
    return get_plain_text(message)


def add_approvals(
    point: TyrumCheckpoint, messages: Sequence[Message], previous: TyrumCheckpoint | None
) -> TyrumCheckpoint:
    """Return a checkpoint with earlier approvals and refusals, and those in some messages."""
    old = previous.approvals if previous is not None else ()
    return replace(
        point, approvals=list_unique_lines([*old, *_iter_approvals(messages)], MAX_LIST_LINES)
    )


def _iter_approvals(messages: Sequence[Message]) -> Iterable[str]:
    calls = {c.id: c for m in messages for c in m.tool_calls}
    for m in messages:
        answer = m.details.get(APPROVAL_KEY)
        if m.role == "tool" and answer in APPROVAL_DECISIONS:
            call = calls.get(m.call_id or "")
            what = " ".join(
                filter(None, [m.tool, message_content_and_truncation.format_call_hint(call)])
            )
            yield f"{what}: {answer} by the user"


_BLOCKS = (
    ("User constraints", "user_constraints", 8),
    ("Preferences", "preferences", 8),
    ("Approvals", "approvals", 20),
    ("Decisions", "decisions", 8),
    ("Discoveries", "discoveries", 8),
    ("Completed work", "completed_work", 8),
    ("Pending work", "pending_work", 8),
    ("Unresolved questions", "unresolved_questions", 8),
    ("Critical identifiers", "critical_identifiers", 20),
    ("Relevant files", "relevant_files", 20),
)


def render_checkpoint(point: TyrumCheckpoint, pending: Sequence[Message] = ()) -> str:
    """Return a checkpoint as text; lists have at most 8 items (names 20), then a count of the rest.

    Args:
        point: the checkpoint.
        pending: messages that wait for an answer, quoted at the end.
    """
    blocks = [f"Goal:\n{point.goal}"] if point.goal else []
    for title, name, limit in _BLOCKS:
        items = getattr(point, name)
        if items:
            more = [f"- ... and {len(items) - limit} more"] if len(items) > limit else []
            blocks.append("\n".join([f"{title}:", *(f"- {i}" for i in items[:limit]), *more]))
    if point.handoff_md:
        blocks.append(f"Handoff:\n{point.handoff_md}")
    if pending:
        rows = [f"- {m.tool or 'approval'} ({m.call_id or m.id}) is pending" for m in pending]
        blocks.append("\n".join(["Pending tool state:", *rows]))
    return "\n\n".join(blocks)


def write_tyrum_transcript(messages: Iterable[Message]) -> str:
    """Write messages as Tyrum does, `Role [id]: text`, without tool results."""
    rows = (
        (m, " ".join(p.text for p in m.parts if isinstance(p, Text)))
        for m in messages
        if m.role != "tool"
    )
    return "\n".join(f"{m.role.capitalize()} [{m.id}]: {text}" for m, text in rows if text)


_PATH_OR_WORD = re.compile(r"\w[\w./-]*\w|\w")
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
    """Return the sentences of some lines that a summary does not have.

    Args:
        lines: lines that the summary should keep.
        summary: the summary; a sentence is in it where it has most of the sentence's words and all
            of its names.
    """
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
    lines: Iterable[str], user_texts: Iterable[str], recorded_approvals: Sequence[str]
) -> tuple[str, ...]:
    """Return the sentences that mention an approval which the user never gave.

    Args:
        lines: lines of the summary.
        user_texts: texts of the user's messages.
        recorded_approvals: the approvals that are on record, each in words.
    """
    user_stems = [_stems(s) for text in user_texts for s in split_statements(text)]
    user_stems += [_stems(each) for each in recorded_approvals]
    claims = (s for line in lines for s in split_statements(line) if _APPROVAL.search(s))
    return tuple(
        claim
        for claim in dict.fromkeys(claims)
        if not any(_share(claim, stems) >= _INVENTED_BELOW for stems in user_stems)
    )[:MAX_NAMED]


def _content_words(text: str) -> list[str]:
    words = [w.casefold() for w in _PATH_OR_WORD.findall(text)]
    long = [w for w in words if len(w) >= _MIN_WORD_CHARS and not _COMMON_WORDS.fullmatch(w)]
    return long or words


def _stems(text: str) -> set[str]:
    """Return the stems of all words of a text."""
    return {w.casefold()[:_STEM_CHARS] for w in _PATH_OR_WORD.findall(text)}


def _names(text: str) -> set[str]:
    """Return the stems of names: words with a capital or a digit behind the first one."""
    words = _PATH_OR_WORD.findall(text)
    inner = [w for w in words[1:] if any(c.isupper() or c.isdigit() for c in w)]
    first = [w for w in words[:1] if any(c.isupper() or c.isdigit() for c in w[1:])]
    return {w.casefold()[:_STEM_CHARS] for w in (*first, *inner) if len(w) > 1}


def _share(sentence: str, stems: set[str]) -> float:
    """Return the share of a sentence's content words that are among some stems; 1 without any."""
    words = _content_words(sentence)
    return sum(w[:_STEM_CHARS] in stems for w in words) / len(words) if words else 1.0
