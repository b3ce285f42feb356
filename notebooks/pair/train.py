"""Train the reader from nothing, on one processor: `python notebooks/pair/train.py [FOLDER [STEPS]]`.

It needs PyTorch (`pip install torch`), which nothing else here does. It writes `reader.npz` (weights, 16 bits each) and
`reader.json` (the recipe, and how many steps are right in worlds whose numbers it never saw).
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ctxkit.course.pair.histories import drawn
from ctxkit.course.pair.pieces import NUMBER, PAD, VOCABULARY, message
from ctxkit.course.pair.reader import HEADS, TAPS, TURNED, Network, rotations
from pair.exam import exam, held_out

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = 22
WIDTH, LAYERS, WIDER = 96, 3, 3
COPYING = 1
"""The layer some of whose heads begin as induction heads (Olsson et al. 2022, arXiv:2209.11895)."""
RATE, WARM, DECAY = 2e-3, 100, 0.01
PIECES = 3_072
"""Pieces of a batch, about: many short conversations or a few long ones."""
STEPS = 1_500
STAGES = ((0.1, 3), (0.4, 6), (1.0, 12))
"""Until which share of the steps conversations have how many questions, at most."""
LENGTHS = 32
"""Batches whose conversations are drawn together and sorted by length."""
EVERY = 50
"""Steps between two words about it; the weights are written each time."""
THREADS = 1


class Trained(nn.Module):
    """The network of `reader.Network`, with gradients."""

    def __init__(self, width: int = WIDTH, layers: int = LAYERS) -> None:
        super().__init__()
        self.layers, made = layers, {}

        def normal(*shape: int, scale: float) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape) * scale)

        made["embed"] = normal(len(VOCABULARY), width, scale=1.0)
        made["last"] = nn.Parameter(torch.ones(width))
        for i in range(layers):
            taps = torch.zeros(TAPS, 3 * width)
            taps[0], taps[1:] = 1, torch.randn(TAPS - 1, 3 * width) * 0.1
            made |= {
                f"{i}.before": nn.Parameter(torch.ones(width)),
                f"{i}.between": nn.Parameter(torch.ones(width)),
                f"{i}.into": normal(width, 3 * width, scale=width**-0.5),
                f"{i}.taps": nn.Parameter(taps),
                f"{i}.out": normal(width, width, scale=0.1 * width**-0.5),
                f"{i}.up": normal(width, WIDER * width, scale=width**-0.5),
                f"{i}.down": normal(WIDER * width, width, scale=0.1 * width**-0.5),
            }
        _begin_copying(made, COPYING, width)
        self.weights = nn.ParameterDict({k.replace(".", "_"): v for k, v in made.items()})

    def __getitem__(self, name: str) -> nn.Parameter:
        return self.weights[name.replace(".", "_")]

    def forward(self, pieces: torch.Tensor) -> torch.Tensor:
        """Return what stands at each place (texts, pieces, width) before the last embedding."""
        x = self["embed"][pieces]
        width = x.shape[2]
        turned = [
            torch.from_numpy(each) for each in rotations(np.arange(pieces.shape[1]), width // HEADS)
        ]
        for i in range(self.layers):
            h = functional.rms_norm(x, (width,), self[f"{i}.before"], eps=1e-5)
            x = x + self._attention(i, h, turned)
            h = functional.rms_norm(x, (width,), self[f"{i}.between"], eps=1e-5)
            x = x + functional.relu(h @ self[f"{i}.up"]).square() @ self[f"{i}.down"]
        return functional.rms_norm(x, (width,), self["last"], eps=1e-5)

    def _attention(self, i: int, x: torch.Tensor, turned: list[torch.Tensor]) -> torch.Tensor:
        raw = x @ self[f"{i}.into"]
        padded = functional.pad(raw, (0, 0, TAPS - 1, 0))
        n, taps = raw.shape[1], self[f"{i}.taps"]
        mixed = sum(padded[:, TAPS - 1 - t : TAPS - 1 - t + n] * taps[t] for t in range(TAPS))
        q, k, v = (part.unflatten(2, (HEADS, -1)).transpose(1, 2) for part in mixed.chunk(3, dim=2))
        q, k = (self._turned(part, *turned) for part in (q, k))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).flatten(2) @ self[f"{i}.out"]

    @staticmethod
    def _turned(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        first, second = x[:, :TURNED].chunk(2, dim=-1)
        turned = [first * cosines - second * sines, second * cosines + first * sines]
        return torch.cat([torch.cat(turned, dim=-1), x[:, TURNED:]], dim=1)

    def kept(self) -> dict[str, np.ndarray]:
        """Return the weights as `reader.Network` takes them."""
        return {
            k.replace("_", "."): v.detach().numpy().astype(np.float16)
            for k, v in self.weights.items()
        }


def _begin_copying(made: dict[str, nn.Parameter], layer: int, width: int) -> None:
    """Let the heads without places begin as what training would have to find first: induction heads.

    They look for the place before which the last three pieces stood, and say what stands there.
    """
    first = TURNED * (width // HEADS)
    into, taps = made[f"{layer}.into"].data, made[f"{layer}.taps"].data
    q, k, v = (slice(part * width + first, (part + 1) * width) for part in range(3))
    into[:, k] = into[:, q]
    taps[:, q], taps[:, k] = torch.tensor([[1.0, 0], [1, 1], [1, 1], [0, 1]])[:, :, None].unbind(1)
    made[f"{layer}.out"].data[first:] = into[:, v].T


def example(random: Random, questions: int) -> tuple[list[int], list[int]]:
    """Return a conversation in pieces, and at which places the next piece is to be learned."""
    pieces: list[int] = []
    learned: list[int] = []
    for role, text, kind in drawn(random, questions):
        more = message(role, text)
        if kind:
            learned += range(len(pieces), len(pieces) + len(more) - 1)
        pieces += more
    return pieces, learned


def batches(random: Random, questions: int, count: int = LENGTHS):
    """Yield batches (pieces, rows, columns of what is learned), each of conversations about as long."""
    total = count * PIECES
    drawn_now = []
    while total > 0:
        drawn_now.append(example(random, questions))
        total -= len(drawn_now[-1][0])
    drawn_now.sort(key=lambda each: len(each[0]))
    out, batch = [], []
    for each in drawn_now:
        if batch and (len(batch) + 1) * len(each[0]) > PIECES:
            out.append(batch)
            batch = []
        batch.append(each)
    random.shuffle(out)
    yield from map(_padded, out)


def _padded(batch):
    longest = max(len(pieces) for pieces, _ in batch)
    table = torch.full((len(batch), longest), NUMBER[PAD])
    for row, (pieces, _) in enumerate(batch):
        table[row, : len(pieces)] = torch.tensor(pieces)
    rows = torch.tensor([row for row, (_, learned) in enumerate(batch) for _ in learned])
    columns = torch.tensor([column for _, learned in batch for column in learned])
    return table, rows, columns


def losses(network: Trained, batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean loss of what is learned, and which of its pieces are right."""
    table, rows, columns = batch
    scores = network(table)[rows, columns] @ network["embed"].T * WIDTH**-0.5
    wanted = table[rows, columns + 1]
    return functional.cross_entropy(scores, wanted), scores.argmax(1) == wanted


def trained(steps: int, keep: Callable[[Trained, dict], None]) -> None:
    """Train for so many steps, and hand over the network and its recipe now and then, and at the end."""
    torch.manual_seed(SEED)
    random, network = Random(SEED), Trained()
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=DECAY
    )
    began, step, pieces, recent = time.process_time(), 0, 0, deque(maxlen=EVERY)
    recipe = {"seed": SEED, "parameters": sum(p.numel() for p in network.parameters())}
    while step < steps:
        questions = next(most for until, most in STAGES if step < until * steps)
        for batch in islice(batches(random, questions), steps - step):
            for group in optimiser.param_groups:
                group["lr"] = RATE * min(1, (step + 1) / WARM, (steps - step) / steps + 0.01)
            loss, right = losses(network, batch)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            step, pieces = step + 1, pieces + batch[0].numel()
            recent.append((loss.item(), right.float().mean().item()))
            if step % EVERY == 0 or step == steps:
                loss_, right_ = np.mean(recent, axis=0).round(4).tolist()
                minutes = round((time.process_time() - began) / 60, 1)
                recipe |= {"steps": step, "pieces": pieces, "minutes": minutes}
                recipe |= {"questions": questions, "loss": loss_, "right": right_}
                keep(network, recipe)


def main(folder: Path = Path(__file__).parent, steps: int = STEPS) -> None:
    """Train, and write the weights and the recipe."""
    torch.set_num_threads(THREADS)
    folder.mkdir(parents=True, exist_ok=True)

    def keep(network: Trained, recipe: dict) -> None:
        np.savez_compressed(folder / "reader.npz", **network.kept())
        (folder / "reader.json").write_text(json.dumps(recipe, indent=2) + "\n")
        print(recipe, flush=True)

    trained(steps, keep)
    examined(folder)


def examined(folder: Path) -> None:
    """Write beside the recipe how many steps the weights have right in worlds whose numbers they never saw."""
    with np.load(folder / "reader.npz") as kept:
        marks = exam(Network(dict(kept)), held_out())
    recipe = json.loads((folder / "reader.json").read_text())
    recipe["held_out"] = {kind: f"{row.right} of {row.steps}" for kind, row in marks.iterrows()}
    (folder / "reader.json").write_text(json.dumps(recipe, indent=2) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]), *map(int, sys.argv[2:3]))
