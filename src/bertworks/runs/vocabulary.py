"""A model with more words: its vocabulary extended from a text, its embedding grown with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bertworks.files import new_folder
from bertworks.model.folder import CONFIG
from bertworks.model.locate import locate
from bertworks.model.resize import grow_vocabulary
from bertworks.text.doctor import Examination, examine
from bertworks.text.extension import Changes, Extension, compare, extend
from bertworks.text.tokenizer import Tokenizer
from bertworks.text.words import Sample
from bertworks.workbench import load


@dataclass(frozen=True)
class Extended:
    extension: Extension
    before: Examination
    after: Examination
    changes: Changes


def extend_model(name: str, texts: Iterable[str], add: int, aliases: dict[str, str], out: Path, *, budget: int, seed: int = 0) -> Extended:
    """Write `name` with `add` more words to `out`; a folder with only a tokenizer gives such a folder."""
    folder = locate(name)
    sample = Sample.of(texts, budget, seed)
    tokenizer = Tokenizer.load(folder)
    before = examine(tokenizer, sample.texts)
    extension = extend(tokenizer, before, add, aliases)
    after = examine(extension.tokenizer, sample.texts)
    changes = compare(before, after, [*extension.words, *aliases, *extension.forms])
    if (folder / CONFIG).is_file():
        bench = load(name)
        bench.model = grow_vocabulary(bench.model, extension.tokenizer.vocab_size, extension.rows)
        bench.replace_tokenizer(
            extension.tokenizer, f"vocabulary extended by {len(extension.rows)} entries and {extension.aliases} aliases"
        )
        with new_folder(out) as new:
            bench.save(new)
    else:
        with new_folder(out) as new:
            extension.tokenizer.save(new)
    return Extended(extension, before, after, changes)
