"""A vocabulary from a text; and a model with more words: its vocabulary extended, its embedding grown with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertworks.data.corpus import Corpus
from bertworks.files import new_folder
from bertworks.model.folder import CONFIG
from bertworks.model.locate import locate
from bertworks.model.resize import grow_vocabulary
from bertworks.text.coverage import SPACED, Coverage, measure_coverage, normalized
from bertworks.text.extension import Extension, SplitChanges, compare, extend
from bertworks.text.tokenizer import Tokenizer
from bertworks.text.training import Kind, train_tokenizer
from bertworks.text.words import Sample
from bertworks.workbench import load


@dataclass(frozen=True)
class ExtensionReport:
    extension: Extension
    before: Coverage
    after: Coverage
    changes: SplitChanges
    wanted: int

    @property
    def rarest(self) -> int:
        return min((self.before.uses[word].count for word in self.extension.words), default=0)

    def as_dict(self) -> dict[str, Any]:
        done, changes = self.extension, self.changes
        return {
            "words": len(done.words),
            "rarest_count": self.rarest,
            "skipped": len(done.skipped),
            "aliases": done.aliases,
            "forms": len(done.forms),
            "freed": done.freed,
            "entries": len(done.rows),
            "pieces_per_word": [self.before.pieces_per_word, self.after.pieces_per_word],
            "changed": {
                "words": changes.words,
                "occurrences": changes.occurrences,
                "shorter": changes.shorter,
                "longer": changes.longer,
            },
            "unknown": {str(kind): count for kind, count in self.after.unknown_kinds().items()},
        }

    def lines(self) -> list[str]:
        """The same for people."""
        done, changes = self.extension, self.changes
        said = [
            f"{len(done.words):,} words added, the rarest of them occurs {self.rarest:,} times; {len(done.rows):,} new entries in all"
        ]
        if len(done.words) < self.wanted:
            said.append(f"the text has no more words that split: {self.wanted:,} were asked for")
        if done.skipped:
            said.append(
                f"{len(done.skipped):,} left out, they would split more words worse than better: {_some(done.skipped)}"
            )
        if done.aliases:
            said.append(
                f"{done.aliases:,} aliases, {len(done.forms):,} of their forms new; {done.freed:,} old entries no longer used"
            )
            said.append(
                "transformers reads the aliases, but writes one name per id: keep this folder, do not save it again from there"
            )
        said.append(
            f"{changes.words:,} other words ({changes.occurrences:,} occurrences) split differently: {changes.shorter:,} in fewer pieces, "
            f"{changes.longer:,} in more" + (f": {_some(changes.examples)}" if changes.examples else "")
        )
        said.append(f"pieces per word: {self.before.pieces_per_word:.3f} before, {self.after.pieces_per_word:.3f} now")
        return said + [f"still unknown: {count:,} {kind}" for kind, count in self.after.unknown_kinds().most_common()]


def extend_model(
    name: str, texts: Iterable[str], add: int, aliases: dict[str, str], out: Path, *, budget: int, seed: int = 0
) -> ExtensionReport:
    """Write `name` with `add` more words to `out`; a folder with only a tokenizer gives such a folder."""
    with new_folder(out) as new:
        folder = locate(name)
        tokenizer, sample = Tokenizer.load(folder), Sample.of(texts, budget, seed)
        before = measure_coverage(tokenizer, sample.texts)
        extension = extend(tokenizer, before, add, aliases)
        after = measure_coverage(extension.tokenizer, sample.texts)
        named = [normalized(tokenizer, one) for one in (*aliases, *aliases.values())]
        if (folder / CONFIG).is_file():
            bench = load(name)
            bench.model = grow_vocabulary(bench.model, extension.tokenizer.vocab_size, extension.rows)
            why = f"vocabulary extended by {len(extension.rows)} entries and {extension.aliases} aliases"
            bench.replace_tokenizer(extension.tokenizer, why)
            bench.save(new)
        else:
            extension.tokenizer.save(new)
    return ExtensionReport(extension, before, after, compare(before, after, [*extension.words, *named]), add)


def _some(words: list[str]) -> str:
    return ", ".join(word.removeprefix(SPACED) for word in words[:5]) + (", ..." if len(words) > 5 else "")


def train_on_corpus(
    corpus: Corpus,
    out: Path,
    *,
    kind: Kind,
    size: int,
    cased: bool,
    max_characters: int,
    seed: int,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> tuple[Tokenizer, Sample]:
    """A new tokenizer in the folder `out`, and the sample of the text that it was trained on."""
    with new_folder(out) as new:
        sample = Sample.of(corpus.paragraphs(progress), max_characters, seed)
        tokenizer = train_tokenizer(sample, kind, size, cased=cased)
        tokenizer.save(new)
    return tokenizer, sample
