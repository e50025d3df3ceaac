"""Training a vocabulary on a corpus, and extending that of a model: its embedding grows with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bertworks.data.corpus import Corpus, ReadProgress
from bertworks.files import check_new_folder, new_folder
from bertworks.model.folder import CONFIG
from bertworks.model.locate import locate
from bertworks.model.resize import grow_vocabulary
from bertworks.text.coverage import SPACE_PREFIX, Coverage, measure_coverage, normalized
from bertworks.text.extension import Extension, SplitChanges, compare_splits, extend
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
    requested_words: int

    @property
    def rarest_count(self) -> int:
        """How often the rarest of the new words occurs."""
        return min((self.before.uses[word].count for word in self.extension.words), default=0)

    def as_dict(self) -> dict[str, object]:
        extension = self.extension
        changes = self.changes
        return {
            "words": len(extension.words),
            "rarest_count": self.rarest_count,
            "skipped": len(extension.skipped),
            "aliases": extension.aliases,
            "forms": len(extension.forms),
            "freed": extension.freed,
            "entries": len(extension.rows),
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
        extension = self.extension
        changes = self.changes
        lines = [
            f"{len(extension.words):,} words added, the rarest occurs {self.rarest_count:,} times; "
            f"{len(extension.rows):,} new entries in total"
        ]
        if len(extension.words) < self.requested_words:
            lines.append(f"{self.requested_words:,} words were requested: the text has no more words that split")
        if extension.skipped:
            lines.append(
                f"{len(extension.skipped):,} words skipped, which would give other words more pieces than they save: "
                f"{_first_few(extension.skipped)}"
            )
        if extension.aliases:
            lines.append(
                f"{extension.aliases:,} aliases, {len(extension.forms):,} new entries for their forms; "
                f"{extension.freed:,} old entries no longer used"
            )
            lines.append(
                "transformers reads the aliases, but saves one name per id: keep this folder, a copy saved from "
                "transformers loses them"
            )
        examples = f": {_first_few(changes.examples)}" if changes.examples else ""
        lines.append(
            f"{changes.words:,} other words ({changes.occurrences:,} occurrences) split differently: "
            f"{changes.shorter:,} into fewer pieces, {changes.longer:,} into more{examples}"
        )
        lines.append(f"pieces per word: {self.before.pieces_per_word:.3f} before, {self.after.pieces_per_word:.3f} now")
        unknown = self.after.unknown_kinds().most_common()
        return lines + [f"still unknown: {count:,} {kind}" for kind, count in unknown]


def extend_model(
    name: str, texts: Iterable[str], add: int, aliases: dict[str, str], out: Path, *, max_characters: int, seed: int = 0
) -> ExtensionReport:
    """Save the model `name` with at most `add` more words to `out`. If `name` is a tokenizer alone, so is `out`.

    `max_characters`: of the text to sample; `aliases`: variants, and the form whose id each gets.
    """
    check_new_folder(out)
    folder = locate(name)
    tokenizer = Tokenizer.load(folder)
    sample = Sample.of(texts, max_characters, seed)
    before = measure_coverage(tokenizer, sample.texts)
    extension = extend(tokenizer, before, add, aliases)
    after = measure_coverage(extension.tokenizer, sample.texts)
    aliased = [normalized(tokenizer, word) for word in (*aliases, *aliases.values())]
    with new_folder(out) as new:  # only now: a process that is killed before leaves nothing behind
        if (folder / CONFIG).is_file():
            bench = load(name)
            bench.model = grow_vocabulary(bench.model, extension.tokenizer.vocab_size, extension.rows)
            change = f"vocabulary extended by {len(extension.rows)} entries and {extension.aliases} aliases"
            bench.replace_tokenizer(extension.tokenizer, change)
            bench.save(new)
        else:
            extension.tokenizer.save(new)
    changes = compare_splits(before, after, [*extension.words, *aliased])
    return ExtensionReport(extension, before, after, changes, add)


def _first_few(words: list[str]) -> str:
    return ", ".join(word.removeprefix(SPACE_PREFIX) for word in words[:5]) + (", ..." if len(words) > 5 else "")


def train_on_corpus(
    corpus: Corpus,
    out: Path,
    *,
    kind: Kind,
    size: int,
    cased: bool,
    max_characters: int,
    seed: int,
    progress: ReadProgress = lambda done, total: None,
) -> tuple[Tokenizer, Sample]:
    """Train a tokenizer and save it to the folder `out`; returned with the sample that it was trained on."""
    check_new_folder(out)
    sample = Sample.of(corpus.paragraphs(progress), max_characters, seed)
    tokenizer = train_tokenizer(sample, kind, size, cased=cased)
    with new_folder(out) as new:  # only now: a process that is killed before leaves nothing behind
        tokenizer.save(new)
    return tokenizer, sample
