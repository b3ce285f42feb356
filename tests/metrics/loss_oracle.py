"""What compactions and prunings lost, worked out by what docs/scores.md says (see `score_oracle`)."""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any

from metrics.oracle_inputs import PageInputs, PromptHistory, average, divide

from ctxkit.metrics import (
    LosableItem,
    RuleParaphraseMatcher,
    expand_path_endings,
    extract_items,
    extract_items_without_thinking,
    iter_texts_and_argument_strings,
)
from ctxkit.session import (
    Text,
    get_call_path,
    is_read_tool,
    is_write_tool,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.session import Message

USER_WEIGHT = 4
ARCHIVE_WORDS, ARCHIVE_CHARS = ("offload", "artifact", "archive"), 200
CUT_CHARS = 200
"""Items of this length may be cut off, and so end inside a word."""


class LossFigures:
    """The columns of loss, item by item and change by change."""

    def __init__(self, inputs: PageInputs, prompts: PromptHistory) -> None:
        self.inputs, self.session, self.prompts = inputs, inputs.session, prompts
        self.stated = [extract_items(m) for m in inputs.rows]
        self.files = self.find_files()
        named = [expand_path_endings(items) for items in self.stated]
        paths = {LosableItem("path", path) for path in self.files.values()}
        self.items = sorted(paths.union(*named))
        self.rules = RuleParaphraseMatcher(
            (n, i) for n, i in enumerate(self.items) if i.family == "constraint"
        )
        self.named = [n | self.find_rules(m) for n, m in zip(named, inputs.rows, strict=True)]
        self.uses: dict[LosableItem, list[int]] = {}
        for call in self.session.calls:
            spoken = expand_path_endings(extract_items_without_thinking(call.message))
            for item in spoken | self.find_rules(call.message):
                self.uses.setdefault(item, []).append(call.index)
        self.of_user = {
            i
            for items, m in zip(self.stated, inputs.rows, strict=True)
            if m.role == "user"
            for i in items
        }
        self.items_of_text: dict[str, frozenset[LosableItem]] = {}

    def find_rules(self, message: Message) -> frozenset[LosableItem]:
        """Return the user's constraints that a message of user or agent gives in any words."""
        text = "\n".join(p.text for p in message.parts if isinstance(p, Text))
        is_speaker = message.role in ("user", "assistant")
        return (
            frozenset(self.items[n] for n in self.rules.in_text(text))
            if is_speaker
            else frozenset()
        )

    def find_files(self) -> dict[int, str]:
        """Return the file whose content a message holds; of several the last one."""
        path_of_call, out, row = dict[str, str](), dict[int, str](), 0
        for message in self.session.messages:
            path = path_of_call.get(message.call_id or "")
            for call in message.tool_calls:
                if is_read_tool(call.name) or is_write_tool(call.name):
                    path = path_of_call[call.id] = get_call_path(call) or path_of_call.get(
                        call.id, ""
                    )
            if message.visible:
                out |= {row: path} if path else {}
                row += 1
        return out

    def find_items(self, message: Message) -> frozenset[LosableItem]:
        """Return the items that an inserted text states."""
        text = " ".join(" ".join(iter_texts_and_argument_strings(message)).split())
        if text not in self.items_of_text:
            low = text.casefold()
            found = {self.items[n] for n in self.rules.in_text(message.text)}
            for item in self.items:
                is_id = item.family == "id" and stands_in(item.text, low)
                if is_id or any(stands_in(form, text) for form in get_forms(item)):
                    found.add(item)
            self.items_of_text[text] = frozenset(found)
        return self.items_of_text[text]

    # -- what each prompt states

    def find_sights(self) -> None:
        """Find what each prompt states, and which items went out of sight at each change."""
        self.visible, self.by_messages = [], []
        for prompt in self.prompts.prompts:
            self.by_messages.append(frozenset().union(*(self.named[row] for row in prompt.rows)))
            texts = (self.find_items(m) for m in prompt.texts)
            self.visible.append(self.by_messages[-1].union(*texts))
        self.removed: dict[LosableItem, int] = {}
        for row, at in self.prompts.left.items():
            for item in self.stated[row]:
                self.removed[item] = min(at, self.removed.get(item, at))
        self.gone = {c: self.find_gone(self.visible, c) for c in self.prompts.changes}
        self.gone_from_messages = {
            c: self.find_gone(self.by_messages, c) for c in self.prompts.changes
        }

    def find_gone(
        self, sights: list[frozenset[LosableItem]], change: int
    ) -> frozenset[LosableItem]:
        came = (self.named[row] for row in self.prompts.came(change))
        before = sights[change - 1] if change else frozenset()
        return before.union(*came) - sights[change]

    @cached_property
    def elsewhere(self) -> dict[int, set[LosableItem]]:
        """What files and archives hold after each change."""
        out, archived = {}, set[LosableItem]()
        for change in self.prompts.changes:
            archived |= {i for row in self.find_archived(change) for i in self.stated[row]}
            out[change] = archived | {
                item
                for row, path in self.files.items()
                if self.prompts.left.get(row, change + 1) <= change
                and LosableItem("path", path) in self.visible[change]
                for item in self.stated[row]
                if item.text != path
            }
        return out

    def find_archived(self, change: int) -> set[int]:
        """Return the messages that a change moves into an archive."""
        left = {row for row, at in self.prompts.left.items() if at == change}
        position = [c.position for c in self.session.calls]
        for at, edit in enumerate(self.session.path):
            if hasattr(edit, "inserted") and bisect_left(position, at) == change:
                texts = [m.text[:ARCHIVE_CHARS] for m in edit.inserted[:1]]
                if names_archive(edit.reason, edit.method, *texts):
                    return left
        items = self.inputs.sent[change] if change < self.inputs.calls_n else ()
        return {
            i.row
            for i in items
            if i.row >= 0 and i.pruned and names_archive(i.message.text[:ARCHIVE_CHARS])
        }

    # -- figures

    def columns(self) -> dict[str, Any]:
        self.find_sights()
        changes, reused = self.prompts.changes, self.find_reused()
        lost, at_stake = self.find_lost(), self.find_at_stake()
        pairs = [(i, c) for c in changes for i, at in self.removed.items() if at <= c]
        kept = [(i, c) for i, c in pairs if i in self.visible[c]]
        again = [(i, c) for i, c in pairs if i not in self.visible[c] and i in self.elsewhere[c]]
        rules = [i in self.visible[c] for i, c in pairs if i.family == "constraint"]
        soon = {(i, self.find_last_change(u)) for i in self.removed for u in self.uses.get(i, ())}
        soon = [(i, c) for i, c in soon if c is not None and self.removed[i] <= c]
        unrecoverable = [i for i, (change, _) in lost.items() if i not in self.elsewhere[change]]
        has_texts = any(prompt.texts for prompt in self.prompts.prompts)
        nothing = None if changes else 0.0
        columns = {
            "items_n": len(pairs),
            "retained": divide(len(kept), len(pairs)),
            "recoverable": divide(len(again), len(pairs)),
            "lost": divide(len(pairs) - len(kept) - len(again), len(pairs)),
            "reused_items_n": len(reused),
            "needed_later_n": sum(self.uses.get(i, [-1])[-1] >= at for i, at in self.removed.items()),
            "needed_lost_n": len(lost),
            "needed_later_loss": divide(len(lost), len(reused)) if reused else nothing,
            "needed_later_unrecoverable": divide(len(unrecoverable), len(reused)) if reused else nothing,
            "weighted_loss": divide(self.weigh(lost), self.weigh(reused)) if reused else nothing,
            "at_stake_items_n": len(at_stake),
            "summary_recall": 1 - self.weigh(lost) / self.weigh(at_stake)
            if at_stake and has_texts else None,
            "user_rules_kept": average(rules),
            "next_interval_loss": divide(sum(i not in self.visible[c] for i, c in soon), len(soon))
            if soon else nothing,
            "calls_to_first_use": average((use - change for change, use in lost.values()), median),
        }  # fmt: skip
        return columns if self.session.has_text else dict.fromkeys(columns)

    def weigh(self, items: Iterable[LosableItem]) -> int:
        return sum(USER_WEIGHT if item in self.of_user else 1 for item in items)

    def find_reused(self) -> set[LosableItem]:
        """Return the items that a reply names after a message before its prompt stated them."""
        first: dict[LosableItem, int] = {}
        for row, items in enumerate(self.stated):
            for item in items:
                first.setdefault(item, self.prompts.arrivals[row])
        calls = self.session.calls
        return {
            item
            for item, uses in self.uses.items()
            for use in uses
            if calls[use].message.visible and first.get(item, use + 1) <= use
        }

    def find_last_change(self, call: int) -> int | None:
        return max((c for c in self.prompts.changes if c <= call), default=None)

    def find_lost(self) -> dict[LosableItem, tuple[int, int]]:
        """Return the items used after they went out of sight, with that change and the use."""
        out = {}
        for item, gone in self.list_changes(self.gone).items():
            use = next((u for u in self.uses.get(item, ()) if u >= gone[0]), None)
            if use is not None:
                out[item] = max(c for c in gone if c <= use), use
        return out

    def find_at_stake(self) -> set[LosableItem]:
        """Return the items used after the messages that are still sent stated them no more."""
        gone = self.list_changes(self.gone_from_messages)
        return {
            item for item, changes in gone.items() if self.uses.get(item, [-1])[-1] >= changes[0]
        }

    def list_changes(self, gone: dict[int, frozenset[LosableItem]]) -> dict[LosableItem, list[int]]:
        """Return the changes at which each removed item went out of sight."""
        out: dict[LosableItem, list[int]] = {}
        for change, items in gone.items():
            for item in items:
                if self.removed.get(item, change + 1) <= change:
                    out.setdefault(item, []).append(change)
        return out


def names_archive(*texts: str | None) -> bool:
    text = " ".join(filter(None, texts)).lower()
    return any(word in text for word in ARCHIVE_WORDS)


def get_forms(item: LosableItem) -> list[str]:
    """Return the ways to write an item: a number also with a space before its unit."""
    spaced = re.sub(r"(?<=\d)(?=[^\d.,])", " ", item.text, count=1)
    return [item.text, spaced] if item.family == "number" else [item.text]


def stands_in(words: str, text: str) -> bool:
    """Return True where words stand in a text as whole words."""
    if words not in text:
        return False
    start = r"(?<!\w)" if re.match(r"\w", words) else ""
    end = r"(?!\w)" if re.search(r"\w\Z", words) and len(words) < CUT_CHARS else ""
    return re.search(start + re.escape(words) + end, text) is not None
