"""Train the reader from random weights, on one processor: `python notebooks/pair/train.py [FOLDER [STEPS]]`.

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

from ctxkit.course.pair.tiny_language_model import (
    CONVOLUTION_WIDTH,
    N_HEADS,
    N_ROTARY_HEADS,
    PAD,
    TOKEN_IDS,
    VOCABULARY,
    TinyReaderNetwork,
    compute_rotations,
    encode_message,
)
from pair.exam import count_right_steps, make_test_conversations
from pair.histories import draw_conversation

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = 22
WIDTH, LAYERS, INNER_FACTOR = 96, 3, 3
INDUCTION_LAYER = 1
"""The layer some of whose heads begin as induction heads (Olsson et al. 2022, arXiv:2209.11895)."""
LEARNING_RATE, WARMUP_STEPS, WEIGHT_DECAY = 2e-3, 100, 0.01
BATCH_TOKENS = 3_072
"""Tokens of a batch, about: many short conversations or a few long ones."""
STEPS = 1_500
STAGES = ((0.1, 3), (0.4, 6), (1.0, 12))
"""Until which share of the steps conversations have how many questions, at most."""
SHUFFLED_BATCHES = 32
"""Batches whose conversations are drawn together and sorted by length."""
REPORT_STEPS = 50
"""Steps between two reports; the weights are written each time."""
THREADS = 1


class TrainingNetwork(nn.Module):
    """The network of `TinyReaderNetwork`, with gradients."""

    def __init__(self, width: int = WIDTH, layers: int = LAYERS) -> None:
        super().__init__()
        self.layers, parameters = layers, {}

        def normal(*shape: int, scale: float) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape) * scale)

        parameters["embed"] = normal(len(VOCABULARY), width, scale=1.0)
        parameters["last"] = nn.Parameter(torch.ones(width))
        for i in range(layers):
            taps = torch.zeros(CONVOLUTION_WIDTH, 3 * width)
            taps[0], taps[1:] = 1, torch.randn(CONVOLUTION_WIDTH - 1, 3 * width) * 0.1
            parameters |= {
                f"{i}.before": nn.Parameter(torch.ones(width)),
                f"{i}.between": nn.Parameter(torch.ones(width)),
                f"{i}.into": normal(width, 3 * width, scale=width**-0.5),
                f"{i}.taps": nn.Parameter(taps),
                f"{i}.out": normal(width, width, scale=0.1 * width**-0.5),
                f"{i}.up": normal(width, INNER_FACTOR * width, scale=width**-0.5),
                f"{i}.down": normal(INNER_FACTOR * width, width, scale=0.1 * width**-0.5),
            }
        _start_induction_heads(parameters, INDUCTION_LAYER, width)
        self.weights = nn.ParameterDict({k.replace(".", "_"): v for k, v in parameters.items()})

    def __getitem__(self, name: str) -> nn.Parameter:
        return self.weights[name.replace(".", "_")]

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the hidden state (texts, tokens, width) before the output layer."""
        x = self["embed"][tokens]
        width = x.shape[2]
        rotations = [
            torch.from_numpy(each)
            for each in compute_rotations(np.arange(tokens.shape[1]), width // N_HEADS)
        ]
        for i in range(self.layers):
            h = functional.rms_norm(x, (width,), self[f"{i}.before"], eps=1e-5)
            x = x + self._attend(i, h, rotations)
            h = functional.rms_norm(x, (width,), self[f"{i}.between"], eps=1e-5)
            x = x + functional.relu(h @ self[f"{i}.up"]).square() @ self[f"{i}.down"]
        return functional.rms_norm(x, (width,), self["last"], eps=1e-5)

    def _attend(self, i: int, x: torch.Tensor, rotations: list[torch.Tensor]) -> torch.Tensor:
        raw = x @ self[f"{i}.into"]
        padded = functional.pad(raw, (0, 0, CONVOLUTION_WIDTH - 1, 0))
        n, taps = raw.shape[1], self[f"{i}.taps"]
        mixed = sum(
            padded[:, CONVOLUTION_WIDTH - 1 - t : CONVOLUTION_WIDTH - 1 - t + n] * taps[t]
            for t in range(CONVOLUTION_WIDTH)
        )
        q, k, v = (
            part.unflatten(2, (N_HEADS, -1)).transpose(1, 2) for part in mixed.chunk(3, dim=2)
        )
        q, k = (self._rotate_heads(part, *rotations) for part in (q, k))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).flatten(2) @ self[f"{i}.out"]

    @staticmethod
    def _rotate_heads(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        first, second = x[:, :N_ROTARY_HEADS].chunk(2, dim=-1)
        rotations = [first * cosines - second * sines, second * cosines + first * sines]
        return torch.cat([torch.cat(rotations, dim=-1), x[:, N_ROTARY_HEADS:]], dim=1)

    def export_weights(self) -> dict[str, np.ndarray]:
        """Return the weights as `TinyReaderNetwork` takes them."""
        return {
            k.replace("_", "."): v.detach().numpy().astype(np.float16)
            for k, v in self.weights.items()
        }


def _start_induction_heads(parameters: dict[str, nn.Parameter], layer: int, width: int) -> None:
    """Start the heads without positions as induction heads, which training would have to find first.

    They look for an earlier place with the same last three tokens, and copy the token after it.
    """
    first = N_ROTARY_HEADS * (width // N_HEADS)
    into, taps = parameters[f"{layer}.into"].data, parameters[f"{layer}.taps"].data
    q, k, v = (slice(part * width + first, (part + 1) * width) for part in range(3))
    into[:, k] = into[:, q]
    taps[:, q], taps[:, k] = torch.tensor([[1.0, 0], [1, 1], [1, 1], [0, 1]])[:, :, None].unbind(1)
    parameters[f"{layer}.out"].data[first:] = into[:, v].T


def make_example(random: Random, questions: int) -> tuple[list[int], list[int]]:
    """Return a conversation as token ids, and the positions whose next token is a target."""
    tokens: list[int] = []
    targets: list[int] = []
    for role, text, kind in draw_conversation(random, questions):
        more = encode_message(role, text)
        if kind:
            targets += range(len(tokens), len(tokens) + len(more) - 1)
        tokens += more
    return tokens, targets


def make_batches(random: Random, questions: int, count: int = SHUFFLED_BATCHES):
    """Yield batches (token ids, rows and columns of targets), each of conversations about as long."""
    total = count * BATCH_TOKENS
    examples = []
    while total > 0:
        examples.append(make_example(random, questions))
        total -= len(examples[-1][0])
    examples.sort(key=lambda each: len(each[0]))
    out, batch = [], []
    for each in examples:
        if batch and (len(batch) + 1) * len(each[0]) > BATCH_TOKENS:
            out.append(batch)
            batch = []
        batch.append(each)
    random.shuffle(out)
    yield from map(_pad_batch, out)


def _pad_batch(batch):
    longest = max(len(tokens) for tokens, _ in batch)
    table = torch.full((len(batch), longest), TOKEN_IDS[PAD])
    for row, (tokens, _) in enumerate(batch):
        table[row, : len(tokens)] = torch.tensor(tokens)
    rows = torch.tensor([row for row, (_, targets) in enumerate(batch) for _ in targets])
    columns = torch.tensor([column for _, targets in batch for column in targets])
    return table, rows, columns


def compute_loss(network: TrainingNetwork, batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean loss of the targets, and which of them are predicted."""
    table, rows, columns = batch
    scores = network(table)[rows, columns] @ network["embed"].T * WIDTH**-0.5
    expected = table[rows, columns + 1]
    return functional.cross_entropy(scores, expected), scores.argmax(1) == expected


def train_network(steps: int, save: Callable[[TrainingNetwork, dict], None]) -> None:
    """Train for so many steps; call `save` with network and recipe now and then, and at the end."""
    torch.manual_seed(SEED)
    random, network = Random(SEED), TrainingNetwork()
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=WEIGHT_DECAY
    )
    start, step, tokens, recent = time.process_time(), 0, 0, deque(maxlen=REPORT_STEPS)
    recipe = {"seed": SEED, "parameters": sum(p.numel() for p in network.parameters())}
    while step < steps:
        questions = next(most for until, most in STAGES if step < until * steps)
        for batch in islice(make_batches(random, questions), steps - step):
            for group in optimiser.param_groups:
                group["lr"] = LEARNING_RATE * min(
                    1, (step + 1) / WARMUP_STEPS, (steps - step) / steps + 0.01
                )
            loss, right = compute_loss(network, batch)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            step, tokens = step + 1, tokens + batch[0].numel()
            recent.append((loss.item(), right.float().mean().item()))
            if step % REPORT_STEPS == 0 or step == steps:
                loss_, right_ = np.mean(recent, axis=0).round(4).tolist()
                minutes = round((time.process_time() - start) / 60, 1)
                recipe |= {"steps": step, "pieces": tokens, "minutes": minutes}
                recipe |= {"questions": questions, "loss": loss_, "right": right_}
                save(network, recipe)


def main(folder: Path = Path(__file__).parent, steps: int = STEPS) -> None:
    """Train, and write the weights and the recipe."""
    torch.set_num_threads(THREADS)
    folder.mkdir(parents=True, exist_ok=True)

    def save(network: TrainingNetwork, recipe: dict) -> None:
        np.savez_compressed(folder / "reader.npz", **network.export_weights())
        (folder / "reader.json").write_text(json.dumps(recipe, indent=2) + "\n")
        print(recipe, flush=True)

    train_network(steps, save)
    write_test_result(folder)


def write_test_result(folder: Path) -> None:
    """Add to the recipe how many steps the weights have right in worlds they never saw."""
    with np.load(folder / "reader.npz") as arrays:
        marks = count_right_steps(TinyReaderNetwork(dict(arrays)), make_test_conversations())
    recipe = json.loads((folder / "reader.json").read_text())
    recipe["held_out"] = {kind: f"{row.right} of {row.steps}" for kind, row in marks.iterrows()}
    (folder / "reader.json").write_text(json.dumps(recipe, indent=2) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]), *map(int, sys.argv[2:3]))
