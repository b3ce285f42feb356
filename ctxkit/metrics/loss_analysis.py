"""Loss analysis: the items that compactions removed, their fates, and the items needed later."""

# Method: interval arithmetic over the lives of facts
#
# An item is a fact that a message states: a path, an id, a number, a rule
# (`metrics.losable_items`). Its life is a set of half-open time spans on a clock with two ticks a
# call (`metrics.message_visibility`): 2c before, 2c + 1 after compactions change call c's prompt.
#
#   visible      a message in the prompt mentions the item (states it, or names the end of its path,
#                or its rule in other words), or an inserted text (a summary) states it
#   retained     still or again visible, since the item was removed
#   recoverable  the path of a file with the item is visible, or an archive stores the item
#   available    retained or recoverable; the fate of a removed item is "lost" while it is neither
#
# An item is *removed* from the first tick at which a message that states it leaves the prompt. From
# then on each end of a visible span is a *removal*: there may be none or several. It is
# *at stake* if, inserted texts left aside, a reply uses it after a removal.
#
#   needed-later loss = items that a reply uses after a removal, stated again or not
#                       / items that replies use again at all
#
# Invariants: an item that no change removed is never lost; inserted text can only lower a loss;
# items needed and lost are at stake. A *change* is a call before which a compaction or pruning
# changed the prompt. Cost, by difference arrays: O((n + m) log n) for n spans and m changes.

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from ctxkit.metrics.losable_items import ITEM_FAMILIES
from ctxkit.policies.texts.message_lines_for_extracts import expand_ranges

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.metrics.item_index_and_rule_matching import ItemIndex
    from ctxkit.metrics.losable_items import LosableItem
    from ctxkit.metrics.message_visibility import Visibility

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


ItemFate = Literal["retained", "recoverable", "lost"]
ITEM_FATES: tuple[ItemFate, ...] = get_args(ItemFate)
NO_CALL = 1 << 62
"""Stands for "no call": above the number of any call."""
CONSTRAINT_FAMILY = ITEM_FAMILIES.index("constraint")
"""The number of the family of the user's rules."""


class RemovedItems(NamedTuple):
    """All removals, ordered by item and then by tick; one array element per removal."""

    item: Ints
    tick: Ints
    is_recoverable: Flags
    """True where the item could be fetched again at that tick."""
    next_use: Ints
    """The first call that uses the item before its next removal, else `NO_CALL`."""


class NeededLostItems(NamedTuple):
    """Items that were used after a removal, each at the first such removal."""

    item: Ints
    calls_until_needed: Ints
    """Calls from the removal to the use."""
    is_recoverable: Flags


class ItemsOnlyInInsertedText(NamedTuple):
    """Items used after a tick at which only inserted text could state them."""

    item: Ints
    tick: Ints
    """First tick at which the last message that states the item left the prompt."""


class RemovedItemsNeededInInterval(NamedTuple):
    """Removed items that were used between one change and the next; one element per pair."""

    item: Ints
    change: Ints
    is_visible: Flags
    """True where the prompt of the first call after the change shows the item."""


class LossAnalysis:
    """The loss of a session's items, given what each of its calls was shown.

    Args:
        item_index: the items of the session's messages, and the calls that use them.
        visibility: the messages and inserted texts that each call was shown.
    """

    def __init__(self, item_index: ItemIndex, visibility: Visibility) -> None:
        self.memory, self.visibility = item_index, visibility
        self._bits = int(visibility.end).bit_length()
        self.change_ticks = 2 * visibility.change_calls + 1
        self.removed_at = np.full(item_index.items_n, visibility.end)
        """The tick of each item's first removal; the end of the clock if it was never removed."""
        stated = item_index.row_items
        left_at = visibility.visible_until[stated.owner]
        left = left_at < visibility.end
        np.minimum.at(self.removed_at, stated.values[left], left_at[left])
        self.is_removed = self.removed_at < visibility.end
        self.first_change = np.searchsorted(self.change_ticks, self.removed_at)
        """The number of the change that removed each item first."""
        self.needed_after_removal = self.is_removed & (item_index.last_use >= self.removed_at // 2)
        self.needed_until = np.searchsorted(visibility.change_calls, item_index.last_use, "right")
        """One past the last change after which each item is still used."""

    # -- time spans of items -----------------------------------------------------------------------

    @cached_property
    def visible_spans(self) -> TimeSpans:
        """Spans in which removed items and the paths of files are visible."""
        is_relevant = self.is_removed.copy()
        is_relevant[self.memory.file_paths] = True
        return self._find_visible_spans(is_relevant, with_texts=True)

    def _find_visible_spans(self, is_relevant: Flags, *, with_texts: bool) -> TimeSpans:
        """Return the visible spans of relevant items; `with_texts=False`: summaries are empty."""
        index, visibility = self.memory, self.visibility
        text_spans = visibility.text_spans if with_texts else visibility.text_spans[:0]
        # Messages are visible from their arrival until they leave the prompt.
        is_selected = is_relevant[index.mention_item]
        item, row = index.mention_item[is_selected], index.mention_row[is_selected]
        # Restored messages and inserted texts are visible with all items that they state.
        later_items = [
            index.row_mentions.get_list(n) for n in visibility.restored_spans[:, 0].tolist()
        ]
        later_items += [visibility.text_items[n] for n in text_spans[:, 0].tolist()]
        later_spans = np.concatenate((visibility.restored_spans, text_spans))
        counts = [len(items) for items in later_items]
        items = np.concatenate((item, *later_items))
        starts = np.concatenate((2 * index.arrival_call[row], np.repeat(later_spans[:, 1], counts)))
        ends = np.concatenate((visibility.visible_until[row], np.repeat(later_spans[:, 2], counts)))
        is_selected = is_relevant[items]
        return TimeSpans.union_of(
            items[is_selected], starts[is_selected], ends[is_selected], self._bits
        )

    @cached_property
    def _recoverable_spans(self) -> TimeSpans:
        """Spans in which removed items are in a file whose path is visible, or in an archive."""
        index, visibility = self.memory, self.visibility
        # Items of files: recoverable while the path is visible, after the content left the prompt.
        left_at = visibility.visible_until[index.file_items.owner]
        has_left = left_at < visibility.end
        file_item, path = index.file_items.values[has_left], index.file_paths[has_left]
        which, span = self.visible_spans.find_spans(path)
        start = np.maximum(self.visible_spans.starts[span], left_at[has_left][which])
        end = self.visible_spans.ends[span]
        is_span = start < end
        # Items of archived messages: recoverable from then on.
        stated, archived_rows = index.row_items, visibility.stored_elsewhere[:, 0]
        counts = stated.starts[archived_rows + 1] - stated.starts[archived_rows]
        archived = stated.values[expand_ranges(stated.starts[archived_rows], counts)]
        return TimeSpans.union_of(
            np.concatenate((file_item[which][is_span], archived)),
            np.concatenate((start[is_span], np.repeat(visibility.stored_elsewhere[:, 1], counts))),
            np.concatenate((end[is_span], np.full(len(archived), visibility.end))),
            self._bits,
        )

    @cached_property
    def retained_spans(self) -> TimeSpans:
        """Spans in which removed items are still or again visible."""
        return self.visible_spans.clip_before(self.removed_at)

    @cached_property
    def available_spans(self) -> TimeSpans:
        """Spans in which removed items are retained or recoverable."""
        return self.retained_spans.union(self._recoverable_spans.clip_before(self.removed_at))

    # -- removals, and uses after them -------------------------------------------------------------

    @cached_property
    def removals(self) -> RemovedItems:
        """Every removal of every item."""
        item, tick = self.visible_spans.owners, self.visible_spans.ends
        is_removal = (tick >= self.removed_at[item]) & (tick < self.visibility.end)
        item, tick = item[is_removal], tick[is_removal]
        next_removal = np.append(tick[1:] // 2, NO_CALL)
        next_removal[:-1][item[1:] != item[:-1]] = NO_CALL
        use = self.memory.find_first_uses(item, tick // 2)
        return RemovedItems(
            item,
            tick,
            self._recoverable_spans.contain(item, tick),
            np.where(use < next_removal, use, NO_CALL),
        )

    @cached_property
    def needed_lost_items(self) -> NeededLostItems:
        """The items that a reply used after a removal, recoverable or stated again or not."""
        removals = self.removals
        used = np.flatnonzero(removals.next_use < NO_CALL)
        item, first = np.unique(removals.item[used], return_index=True)
        at = used[first]
        delay = removals.next_use[at] - removals.tick[at] // 2
        return NeededLostItems(item, delay, removals.is_recoverable[at])

    @cached_property
    def items_only_in_inserted_text(self) -> ItemsOnlyInInsertedText:
        """The removed items that were used after a tick at which no message stated them.

        Only inserted text could still state them, so `needed_lost_items` is a subset.
        """
        spans = self._find_visible_spans(self.needed_after_removal, with_texts=False)
        item, tick = spans.owners, spans.ends
        is_removal = (tick >= self.removed_at[item]) & (tick < self.visibility.end)
        item, first = np.unique(item[is_removal], return_index=True)
        tick = tick[is_removal][first]
        is_needed = self.memory.last_use[item] >= tick // 2
        return ItemsOnlyInInsertedText(item[is_needed], tick[is_needed])

    @cached_property
    def needed_in_interval(self) -> RemovedItemsNeededInInterval:
        """The removed items that a reply used between a change and the next one."""
        index, changes_n = self.memory, len(self.change_ticks)
        uses = index.reply_items
        last_change = (
            np.searchsorted(self.visibility.change_calls, np.arange(index.calls), "right") - 1
        )
        change, item = last_change[uses.owner], uses.values
        is_removed = (change >= 0) & (self.first_change[item] <= change)
        pairs = np.unique(item[is_removed] * (changes_n + 1) + change[is_removed])
        item, change = pairs // (changes_n + 1), pairs % (changes_n + 1)
        is_visible = self.visible_spans.contain(item, self.change_ticks[change])
        return RemovedItemsNeededInInterval(item, change, is_visible)

    # -- figures -----------------------------------------------------------------------------------

    @property
    def recall(self) -> float | None:
        """The weighted share of the items at stake that inserted text stated until their use.

        None where no text was inserted or nothing was at stake.
        """
        weight = self.memory.weight
        at_stake = float(weight[self.items_only_in_inserted_text.item].sum())
        if not at_stake or not len(self.visibility.text_spans):
            return None
        return 1 - float(weight[self.needed_lost_items.item].sum()) / at_stake

    @property
    def rules_retained(self) -> float | None:
        """The visible share of the user's removed rules, over all changes; None: none removed."""
        is_rule = self.memory.family == CONSTRAINT_FAMILY
        changes_n = len(self.change_ticks)
        n = int((changes_n - self.first_change[is_rule & self.is_removed]).sum())
        start, stop = self.retained_spans.find_ranges(self.change_ticks)
        visible = (stop - start)[is_rule[self.retained_spans.owners]]
        return int(visible.sum()) / n if n else None

    def count_by_family(self) -> Ints:
        """Return counts of items with the axes kind of count, family, change.

        The nine kinds of count:
        0-2: items removed so far that are retained, recoverable, lost;
        3-4: removed items that are used before the next change; those of them not visible;
        5-6: items that this change removed; those of them used before their next removal;
        7-8: items that this change put at stake; those of them that inserted text stated until
        their use.
        """
        changes_n, families_n = len(self.change_ticks), len(ITEM_FAMILIES)
        family_of = self.memory.family

        def count(items: Ints, changes: Ints) -> Ints:
            cell = family_of[items] * changes_n + changes
            return np.bincount(cell, minlength=families_n * changes_n).reshape(
                families_n, changes_n
            )

        item, change, is_visible = self.needed_in_interval
        removals, stake = self.removals, self.items_only_in_inserted_text
        removed_by = np.searchsorted(self.change_ticks, removals.tick)
        is_used = removals.next_use < NO_CALL
        staked_by = np.searchsorted(self.change_ticks, stake.tick)
        is_stated = ~np.isin(stake.item, self.needed_lost_items.item)
        counts = [
            count(item, change),
            count(item[~is_visible], change[~is_visible]),
            count(removals.item, removed_by),
            count(removals.item[is_used], removed_by[is_used]),
            count(stake.item, staked_by),
            count(stake.item[is_stated], staked_by[is_stated]),
        ]
        return np.concatenate((self._count_fates(family_of, families_n), counts))

    def count_by_cohort(self) -> Ints:
        """Return counts of items with the axes fate, change of first removal, change."""
        return self._count_fates(self.first_change, len(self.change_ticks))

    def _count_fates(self, group_of: Ints, groups_n: int) -> Ints:
        """Return counts of removed items with the axes fate, group of the item, change."""
        # An item counts at every change from its first removal on: as retained while the prompt
        # states it, as recoverable while only something that the agent can read does, else as lost.
        changes_n, removed = len(self.change_ticks), np.flatnonzero(self.is_removed)
        shape = (groups_n, changes_n)
        gone = count_over_ranges(
            shape,
            (group_of[removed],),
            self.first_change[removed],
            np.full(len(removed), changes_n),
        )
        retained, available = (
            count_over_ranges(
                shape, (group_of[spans.owners],), *spans.find_ranges(self.change_ticks)
            )
            for spans in (self.retained_spans, self.available_spans)
        )
        return np.stack((retained, available - retained, gone - available))

    def fates(self, change: int = -1) -> dict[LosableItem, ItemFate]:
        """Return the fate at a change of each item removed until then."""
        tick = self.change_ticks[change]
        items = np.flatnonzero(self.removed_at <= tick)
        retained = self.retained_spans.contain(items, tick)
        available = self.available_spans.contain(items, tick)
        fates = np.where(retained, 0, np.where(available, 1, 2)).tolist()
        names = list(self.memory.item_numbers)
        return {names[i]: ITEM_FATES[fate] for i, fate in zip(items.tolist(), fates, strict=True)}

    def find_first_rows(self) -> list[int]:
        """Return the first of the rows whose removal removed each item, or -1."""
        stated, left_at = self.memory.row_items, self.visibility.visible_until
        first = np.full(self.memory.items_n, len(left_at))
        is_first_removal = left_at[stated.owner] == self.removed_at[stated.values]
        np.minimum.at(first, stated.values[is_first_removal], stated.owner[is_first_removal])
        return list(np.where(self.is_removed, first, -1).tolist())


ORACLE_MOMENTS = 16
"""Maximum number of changes at which the best set of messages is computed: those with the most
needed items that are not visible.
"""


class OracleBound:
    """Lower bound of the loss that any choice of messages of the same total size has.

    At one change the choice is a 0/1 knapsack (value: needed items that a message names; weight:
    its tokens; capacity: the prompt). Its fractional relaxation, solved greedily by value per
    token in O(m log m) for m messages, bounds the value from above and so the loss from below.
    """

    def __init__(self, analysis: LossAnalysis) -> None:
        self._analysis = analysis

    @property
    def lower_bound(self) -> float:
        """Needed items that the best messages of the same size miss at the hardest change."""
        invisible, bound = self._count_invisible(), 0.0
        for change in np.argsort(-invisible, kind="stable")[:ORACLE_MOMENTS].tolist():
            if invisible[change] > bound:
                bound = max(bound, self.missing(change))
        return bound

    def _count_invisible(self) -> Ints:
        """Return the number of needed items that are not visible, for each change."""
        analysis = self._analysis
        shape, is_needed = (len(analysis.change_ticks),), analysis.needed_after_removal
        needed = np.flatnonzero(is_needed)
        first, stop = analysis.first_change[needed], analysis.needed_until[needed]
        removed_n = count_over_ranges(shape, (), first, np.maximum(stop, first))
        spans = analysis.retained_spans
        item = spans.owners
        start, stop = spans.find_ranges(analysis.change_ticks)
        stop = np.minimum(stop, analysis.needed_until[item])
        is_counted = is_needed[item] & (start < stop)
        visible_n = count_over_ranges(shape, (), start[is_counted], stop[is_counted])
        return np.asarray(removed_n - visible_n)

    def missing(self, change: int) -> float:
        """Return how many items needed after a change the best choice of messages would miss.

        An item that several messages name counts for each of them; the result is still a bound.
        """
        index, visibility = self._analysis.memory, self._analysis.visibility
        tick, call = int(self._analysis.change_ticks[change]), int(visibility.change_calls[change])
        is_needed = (self._analysis.removed_at <= tick) & (index.last_use >= call)
        rows_n = int(np.searchsorted(index.arrival_call, call, "right"))
        mentions_n = index.row_mentions.starts[rows_n]
        rows = index.row_mentions.owner[:mentions_n]
        value_of_row = np.bincount(
            rows[is_needed[index.row_mentions.values[:mentions_n]]], minlength=rows_n
        )
        # fill the prompt by needed items per token; of the last message only a part may fit
        useful = np.flatnonzero(value_of_row)
        value, tokens = value_of_row[useful], np.maximum(index.row_tokens[useful], 1)
        by_density = np.argsort(-value / tokens, kind="stable")
        value, tokens = value[by_density], tokens[by_density]
        capacity_left = self._count_prompt_tokens(tick, rows_n) - np.cumsum(tokens) + tokens
        share = np.clip(capacity_left / tokens, 0.0, 1.0)
        needed_n = int(is_needed.sum())
        return needed_n - min(float((value * share).sum()), float(needed_n))

    def _count_prompt_tokens(self, tick: int, rows_n: int) -> float:
        """Return the tokens of all messages and texts that are visible at a tick."""
        visibility, row_tokens = self._analysis.visibility, self._analysis.memory.row_tokens
        total = int(row_tokens[:rows_n][visibility.visible_until[:rows_n] > tick].sum())
        for spans, tokens in (
            (visibility.restored_spans, row_tokens),
            (visibility.text_spans, visibility.text_tokens),
        ):
            is_visible = (spans[:, 1] <= tick) & (tick < spans[:, 2])
            total += int(tokens[spans[is_visible, 0]].sum())
        return float(total)


class TimeSpans(NamedTuple):
    """Disjoint half-open time spans of many owners (items), in two sorted arrays.

    Owner and tick are packed into one integer, ``owner << bits | tick``, so that one binary search
    over all owners finds a span: an interval index without a tree. The spans of one owner do not
    touch; all spans are sorted by owner and then by tick.
    """

    start_keys: Ints
    end_keys: Ints
    bits: int
    """Number of bits of a tick."""

    @classmethod
    def union_of(cls, owners: Ints, starts: Ints, ends: Ints, bits: int) -> TimeSpans:
        """Return the union of spans in any order; spans of one owner may overlap.

        Args:
            owners: the owner of each span, a number of 0 or more.
            starts: first tick of each span.
            ends: one past the last tick of each span.
            bits: number of bits of a tick.
        """
        start_keys, end_keys = (owners << bits) + starts, (owners << bits) + ends
        if not (start_keys[1:] >= start_keys[:-1]).all():
            order = np.argsort(start_keys, kind="stable")
            start_keys, end_keys = start_keys[order], end_keys[order]
        # Sweep by start: a span that begins after all ends so far opens a new one. Keys of earlier
        # owners are smaller, so one sweep serves all owners.
        end_keys = np.maximum.accumulate(end_keys)
        is_first = np.ones(len(start_keys), bool)
        np.greater(start_keys[1:], end_keys[:-1], out=is_first[1:])
        first = np.flatnonzero(is_first)
        last = np.append(first[1:] - 1, -1)  # -1: the last union ends with the last span
        return cls(start_keys[first], end_keys[last] if len(first) else end_keys, bits)

    @property
    def owners(self) -> Ints:
        """The owner of each span."""
        return self.start_keys >> self.bits

    @property
    def starts(self) -> Ints:
        """The first tick of each span."""
        return self.start_keys & ((1 << self.bits) - 1)

    @property
    def ends(self) -> Ints:
        """One past the last tick of each span."""
        return self.end_keys & ((1 << self.bits) - 1)

    def contain(self, owners: Ints, ticks: Ints | int) -> Flags:
        """Return whether a span of the owner contains the tick, for each pair of owner and tick.

        Args:
            owners: numbers of owners (rows or items).
            ticks: a point in time for each of them, or one for all.
        """
        if not len(self.start_keys):
            return np.zeros(len(owners), bool)
        keys = (owners << self.bits) + ticks
        at = np.searchsorted(self.start_keys, keys, "right") - 1
        return np.asarray((at >= 0) & (self.end_keys[np.maximum(at, 0)] > keys))

    def find_spans(self, owners: Ints) -> tuple[Ints, Ints]:
        """Return the spans of some owners as pairs: position in `owners`, position of the span."""
        first = np.searchsorted(self.start_keys, owners << self.bits)
        counts = np.searchsorted(self.start_keys, (owners + 1) << self.bits) - first
        return np.repeat(np.arange(len(owners)), counts), expand_ranges(first, counts)

    def clip_before(self, first_ticks: Ints) -> TimeSpans:
        """Return the parts of the spans from the first tick of each owner on."""
        owners = self.owners
        start_keys = np.maximum(self.start_keys, (owners << self.bits) + first_ticks[owners])
        is_span = start_keys < self.end_keys
        return TimeSpans(start_keys[is_span], self.end_keys[is_span], self.bits)

    def union(self, other: TimeSpans) -> TimeSpans:
        """Return the union with other spans."""
        starts = np.concatenate((self.start_keys, other.start_keys))
        ends = np.concatenate((self.end_keys, other.end_keys))
        # The keys hold their owner already: owner 0 adds nothing.
        return TimeSpans.union_of(np.zeros_like(starts), starts, ends, self.bits)

    def find_ranges(self, ticks: Ints) -> tuple[Ints, Ints]:
        """Return the range (first, stop) of the sorted ticks that are in each span."""
        return np.searchsorted(ticks, self.starts), np.searchsorted(ticks, self.ends)


def count_over_ranges(
    shape: tuple[int, ...], group: tuple[Any, ...], first: Ints, stop: Ints
) -> Ints:
    """Return how many ranges ``first..stop`` cover each place of the last axis (difference array).

    Args:
        shape: shape of the result.
        group: index of each range on the other axes.
        first: first place of each range.
        stop: one past its last place.
    """
    steps = np.zeros((*shape[:-1], shape[-1] + 1), np.int64)
    np.add.at(steps, (*group, first), 1)
    np.add.at(steps, (*group, stop), -1)
    return np.asarray(np.cumsum(steps, axis=-1)[..., :-1])
