"""Small trainings for tests: a language with known structure, tiny models, runs in this process."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

from bertworks.data.shards import Shards
from bertworks.runs.context import Outcome, ProcessContext
from bertworks.runs.pretrain import PretrainJob, pretrain, resume
from bertworks.runs.settings import PRETRAIN, option_settings, parse_settings, resolve_pretrain
from bertworks.text.backends import word_piece
from bertworks.text.tokenizer import Tokenizer
from bertworks.train.checkpoint import CHECKPOINTS, OPTIMIZER, WEIGHTS, list_checkpoints
from texts import SPECIAL, make_shards

TOPICS, PLACES, ORDINALS = 8, 6, 10
TINY = [
    "model.n_layers=2",
    "model.hidden_size=64",
    "model.n_heads=4",
    "model.ffn_size=128",
    "data.max_length=48",
    "data.held_out=0.1",
    "train.batch_tokens=512",
    "train.evaluate_tokens=2048",
    "train.log_every=5",
]


def overridden(*settings: str) -> list[str]:
    """Of settings with the same key the last one: `--set` takes each key once."""
    return list({setting.partition("=")[0]: setting for setting in settings}.values())


def word(topic: int, position: int) -> str:
    return f"{'abcdefgh'[topic]}{'klmnop'[position]}"


def language_tokenizer() -> Tokenizer:
    """A tokenizer of the made-up language: one token per word."""
    words = [word(topic, position) for topic in range(TOPICS) for position in range(PLACES)]
    pieces = [*SPECIAL, ".", *words, *(f"{'qrstuvwxyz'[n]}z" for n in range(ORDINALS))]
    return Tokenizer.from_json(json.loads(word_piece({piece: id for id, piece in enumerate(pieces)}, {}).to_str()), {})


def language_texts(count: int, seed: int = 0) -> list[str]:
    """Documents of one topic. A sentence starts with its number in the document, then come the topic's words in their
    order, and one of them again.

    So a word is determined by topic and position, sentences of a document share their words, and their order can be
    read off.
    """
    rng = random.Random(seed)
    texts = []
    for _ in range(count):
        topic = rng.randrange(TOPICS)
        sentences = []
        for number in range(ORDINALS):
            words = [*(word(topic, position) for position in range(PLACES)), word(topic, rng.randrange(PLACES))]
            sentences.append(" ".join([f"{'qrstuvwxyz'[number]}z", *words]).capitalize() + ".")
        texts.append(" ".join(sentences))
    return texts


def language_shards(folder: Path, count: int = 120) -> Shards:
    return make_shards(folder, language_texts(count), language_tokenizer())


def train(
    shards: Shards,
    out: Path,
    preset: str,
    *settings: str,
    objective: str | None = None,
    steps: int | None = None,
    **limit: Any,
) -> Outcome:
    options = {"steps": steps, **limit} if steps is not None else limit
    config = resolve_pretrain(
        shards.tokenizer,
        preset=preset,
        objective=objective,
        settings=parse_settings(overridden(*TINY, *settings), PRETRAIN, option_settings(**options)),
    )
    return pretrain(PretrainJob(config, shards, preset=preset), out, ProcessContext.library())


def resume_run(out: Path, **options: Any) -> Outcome:
    return resume(out, ProcessContext.library(), **options)


def events(out: Path, kind: str) -> list[dict[str, Any]]:
    """Lines of `metrics.jsonl`."""
    lines = (json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines())
    return [event for event in lines if event["kind"] == kind]


def digest(out: Path, step: int | None = None) -> str:
    """A hash of the weights and the optimiser at a step, the last by default."""
    checkpoints = dict(list_checkpoints(out / CHECKPOINTS))
    checkpoint = checkpoints[max(checkpoints) if step is None else step]
    return hashlib.sha256(b"".join((checkpoint / name).read_bytes() for name in (WEIGHTS, OPTIMIZER))).hexdigest()
