"""An atlas: the heads of a model named over a corpus, as an object, as JSON and as a table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bertworks.errors import BadText
from bertworks.files import atomic_write
from bertworks.inspect.ablation import N_RECURRING, Ablation, ablate_heads
from bertworks.inspect.heads import HeadEntry, HeadName, NamingResult, name_heads
from bertworks.inspect.identity import model_hash
from bertworks.inspect.measures import own_measure
from bertworks.inspect.naming import Thresholds
from bertworks.inspect.own_relations import FindPairs, OwnRelations
from bertworks.inspect.passages import MAX_COUNTED_CHARACTERS, MAX_TOKENS, WORD, Passages, read_passages, with_own_words
from bertworks.inspect.predicting import HidingModel, OrderedPMI, Predictors, find_predictors
from bertworks.inspect.preparing import AtlasTexts, Preparation
from bertworks.inspect.related import MIN_CORPUS_WORDS, Relatedness, own_vectors, word_vectors
from bertworks.inspect.replacing import Replacement
from bertworks.inspect.units import WordTypes
from bertworks.model.model import Model
from bertworks.model.pooling import Pooling
from bertworks.model.weights import as_numpy
from bertworks.tasks.inference import Progress, no_progress
from bertworks.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bertworks.inspect.compare import Comparison

FORMAT = 2
BY_COUNTING = "by counting"
BY_OWN_VECTORS = "by the model's own vectors"


class LoadedModel(Protocol):
    """A `Workbench`, which is above this package."""

    model: Model
    pooling: Pooling

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def limit(self) -> int: ...

    @property
    def generator(self) -> LoadedModel | None: ...


@dataclass(frozen=True)
class Atlas:
    """The heads of a model with their names, and the evidence for them."""

    naming: NamingResult
    model_hash: str
    corpus_hash: str
    n_passages: int
    n_documents: int
    n_words: int
    n_dropped: int  # pairs that have a sentence in common
    max_tokens: int
    seed: int
    best_offsets: Mapping[str, tuple[int, float]]
    ablation: Ablation | None = None

    def names(self, layer: int, head: int) -> list[str]:
        return [head_name.name for head_name in self.naming.head(layer, head).names]

    def ranking(self, relation: str) -> list[tuple[int, int, float]]:
        """Layers and heads by their hits on a relation of yours, the best first."""
        hits = [(entry.layer, entry.head, entry.own[relation]) for entry in self.naming.heads]
        return sorted(hits, key=lambda row: -row[2])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One for each head."""
        rows = [_row(head) for head in self.naming.heads]
        if self.ablation is not None:
            rows = [{**row, "importance": self.ablation.of_head(row["layer"], row["head"])} for row in rows]
        return rows

    def as_dict(self) -> dict[str, Any]:
        """The same for the same input, to the byte."""
        naming = self.naming
        return {
            "format": FORMAT,
            "model": self.model_hash,
            "corpus": self.corpus_hash,
            "passages": self.n_passages,
            "documents": self.n_documents,
            "words": self.n_words,
            "dropped": self.n_dropped,
            "max_tokens": self.max_tokens,
            "seed": self.seed,
            "thresholds": asdict(naming.thresholds),
            "counts": {name: {"types": sizes[0], "documents": sizes[1]} for name, sizes in naming.counts.items()},
            "best_offsets": {
                name: {"offset": offset, "hit": round(hit, 6)} for name, (offset, hit) in self.best_offsets.items()
            },
            "null": {"names": naming.null_names, "tests": naming.null_tests},
            "unseen": dict(naming.unseen),
            **({} if self.ablation is None else {"ablation": self.ablation.as_dict()}),
            "heads": self.rows,
        }

    def to_pandas(self) -> Any:
        from pandas import DataFrame  # type: ignore[import-untyped]

        return DataFrame(self.rows)

    @property
    def examples(self) -> dict[tuple[int, int], dict[str, list[Any]]]:
        """Where heads do what they are named for, by head and name."""
        return {
            (row["layer"], row["head"]): {name: evidence["examples"] for name, evidence in row["evidence"].items()}
            for row in self.rows
            if row["names"]
        }

    def compare(self, other: Atlas) -> Comparison:
        """Which names heads keep, lose and gain in the other one, head by head in the same place."""
        from bertworks.inspect.compare import compare_atlases  # which imports this module

        return compare_atlases(self.as_dict(), other.as_dict())

    def save(self, path: str | Path, *, model: str = "") -> Path:
        """As a page, if the path ends with `.html`; else as JSON. `model`: its name, for the page."""
        if Path(path).suffix == ".html":
            from bertworks.inspect.atlas_page import write_atlas_page  # not always needed

            return write_atlas_page(Path(path), self.as_dict(), model=model)
        with atomic_write(Path(path)) as file:
            file.write((json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n").encode())
        return Path(path)


def _row(head: HeadEntry) -> dict[str, Any]:
    row: dict[str, Any] = {
        "layer": head.layer,
        "head": head.head,
        "names": [head_name.name for head_name in head.names],
        "evidence": {head_name.name: _evidence(head_name) for head_name in head.names},
        "description": _rounded(head.description),
        "descriptions": list(head.descriptions),
        "profile": {str(offset): round(value, 6) for offset, value in head.profile.items()},
    }
    if head.own:
        row["own"] = _rounded(head.own)
    return row


def _evidence(head_name: HeadName) -> dict[str, Any]:
    evidence: dict[str, Any] = {
        "grade": "strong" if head_name.is_strong else "clear",
        "strong": head_name.is_strong,
        "confirmed": head_name.is_confirmed,
        "numbers": _rounded(head_name.numbers),
        "conditions": [
            {"what": what, "value": round(value, 6), "lower": round(lower, 6), "needs": needs}
            for what, value, lower, needs in head_name.conditions
        ],
        "null": _rounded(head_name.null),
        "types": head_name.n_types,
        "documents": head_name.n_documents,
        "notes": list(head_name.notes),
        "examples": [{**asdict(example), "weight": round(example.weight, 4)} for example in head_name.examples],
    }
    if head_name.by is not None:
        evidence["by"] = head_name.by
    return evidence


def _rounded(numbers: Mapping[str, float]) -> dict[str, float]:
    return {title: round(value, 6) for title, value in numbers.items()}


# ---------------------------------------------------------------------- making one


def atlas(
    model: LoadedModel,
    texts: Iterable[str],
    *,
    sentences: int = 500,
    pairs: bool | None = None,
    relations: Mapping[str, FindPairs] | None = None,
    relations_file: str | Path | None = None,
    thresholds: Thresholds | None = None,
    ablate: bool | Replacement = False,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Atlas:
    """Name the heads of a model over documents; `sentences`: how many passages, or pairs of them, are read. Without
    `pairs` they are pairs if the model was made for them.

    `relations`: functions by name, from the units of a passage to pairs of indices; `relations_file`: word pairs, or a
    treebank in CoNLL-U. `ablate`: also measure what each head is worth, on other passages, with its output replaced by
    its mean, or as this says.
    """
    thresholds = thresholds or Thresholds()
    own = OwnRelations.of(relations, relations_file, model.tokenizer, _max_tokens(model))
    documents = list(first_documents(texts))
    read = _read(documents, model, sentences, reads_pairs(model) if pairs is None else pairs, own)
    atlas_texts = _prepare(model, documents, read, own, thresholds, seed, progress)
    naming = name_heads(model.model, atlas_texts, thresholds=thresholds, seed=seed, progress=progress)
    return Atlas(
        naming,
        model_hash=model_hash(model.model),
        corpus_hash=_corpus_hash(documents),
        n_passages=len(read.passages),
        n_documents=len({passage.document for passage in read.passages}),
        n_words=read.words.n_tokens,
        n_dropped=read.n_dropped,
        max_tokens=_max_tokens(model),
        seed=seed,
        best_offsets=atlas_texts.best_offsets,
        ablation=_ablation(model, documents, naming, read, ablate, progress) if ablate else None,
    )


def _ablation(
    model: LoadedModel,
    documents: Sequence[str],
    naming: NamingResult,
    read: Passages,
    ablate: bool | Replacement,
    progress: Progress,
) -> Ablation:
    """On passages that the names are not of."""
    n, pairs = len(read.passages) + N_RECURRING, len(read.passages[0].texts) > 1
    more = read_passages(documents, model.tokenizer, n=n, pairs=pairs, max_tokens=_max_tokens(model))
    used = {passage.texts for passage in read.passages}
    return ablate_heads(
        model.model,
        own_measure(model.model, model.tokenizer, model.pooling),
        naming.heads,
        read.passages,
        [passage for passage in more.passages if passage.texts not in used],
        more.words,
        replacement="mean" if isinstance(ablate, bool) else ablate,
        progress=progress,
    )


def _max_tokens(model: LoadedModel) -> int:
    return min(MAX_TOKENS, model.limit)


def _read(documents: Sequence[str], model: LoadedModel, n: int, pairs: bool, own: OwnRelations) -> Passages:
    read = read_passages(documents, model.tokenizer, n=n, pairs=pairs, max_tokens=_max_tokens(model))
    if not read.passages:
        cause = "no passages in this text" if any(map(str.strip, documents)) else "no text"
        remedy = "sentences, several in a document; a blank line ends one"
        raise BadText(cause, remedy=remedy, code="no-passages")
    counts = with_own_words(read.words.counts, [parsed.passage for parsed in own.treebank])
    return Passages(read.passages, read.foreign, read.sentences, WordTypes(counts), read.n_documents, read.n_dropped)


def _prepare(
    model: LoadedModel,
    documents: Sequence[str],
    read: Passages,
    own: OwnRelations,
    thresholds: Thresholds,
    seed: int,
    progress: Progress,
) -> AtlasTexts:
    causal = bool(getattr(model.model.config.encoder, "causal", False))
    separators = frozenset(model.tokenizer.pair_template.parts[1][0].tolist())
    preparation = Preparation(read, causal, separators, seed)
    numbered = _numbered(documents, read.words)
    relatedness = _relatedness(numbered, model, read)
    hiding = hiding_model(model)
    ordered_pmi: OrderedPMI | None = None
    predictors: Sequence[Predictors] = ()
    if hiding is not None:
        predictors = find_predictors(
            hiding,
            read.sentences,
            preparation.inspected(read.sentences),
            read.words.n_tokens,
            thresholds.predicts_effect,
            np.random.default_rng([seed, 3]),
            progress,
        )
        preparation.by["predicts"] = hiding.by
        if predictors and np.concatenate([predicted.gains for predicted in predictors]).mean() <= 0:
            predictors = ()
            reason = "cannot be seen: this model predicts words no better than their frequencies do"
            preparation.unseen["predicts"] = reason
    elif sum(map(len, numbered)) >= MIN_CORPUS_WORDS:
        ordered_pmi = OrderedPMI(numbered, len(read.words.words))
        preparation.by["predicts"] = BY_COUNTING
    else:
        reason = "cannot be seen: this model has no language head, and there is not enough text for counting"
        preparation.unseen["predicts"] = reason
    atlas_texts = preparation.prepare(relatedness, ordered_pmi, predictors, own, thresholds)
    return replace(atlas_texts, unseen={**atlas_texts.unseen, **dict.fromkeys(own.rare_names, "not enough text")})


def hiding_model(model: LoadedModel) -> HidingModel | None:
    """The model itself, or ELECTRA's generator; None, if neither has a language head."""
    if "lm" not in model.model.heads:
        return None if model.generator is None else _generator(model.generator)
    encoder = model.model.config.encoder
    if getattr(encoder, "has_two_streams", False):
        return HidingModel(model.model, None, "by its query stream")
    if getattr(encoder, "causal", False):
        return HidingModel(model.model, None, "by words taken from the past")
    if "mask" not in model.tokenizer.special:
        return None
    return HidingModel(model.model, model.tokenizer.id_of("mask"), "by hiding words")


def _generator(generator: LoadedModel) -> HidingModel | None:
    hiding = hiding_model(generator)
    return hiding and HidingModel(hiding.model, hiding.mask_id, "by its generator")


def reads_pairs(model: LoadedModel) -> bool:
    """Whether it was made for pairs of texts: not from left to right, and with a segment for each."""
    encoder = model.model.config.encoder
    if getattr(encoder, "causal", False):
        return False
    n_segments = encoder.n_segments
    return n_segments == 0 or max(model.tokenizer.pair_template.segments) < n_segments


def first_documents(texts: Iterable[str]) -> Iterator[str]:
    """As much of a corpus as is read."""
    n_characters = 0
    for text in texts:
        if n_characters > MAX_COUNTED_CHARACTERS:
            return
        n_characters += len(text)
        yield text


def _numbered(documents: Sequence[str], words: WordTypes) -> list[list[int]]:
    """The words of the corpus, by their numbers. All that was read: a third of it makes vectors half as good
    (tests/test_related.py)."""
    numbered: list[list[int]] = []
    for document in documents:
        numbers = map(words.index.get, WORD.findall(document.lower()))
        numbered.append([number for number in numbers if number is not None])
    return numbered


def _relatedness(numbered: Sequence[Sequence[int]], model: LoadedModel, read: Passages) -> Relatedness:
    words = read.words
    if sum(map(len, numbered)) >= MIN_CORPUS_WORDS:
        return Relatedness(word_vectors(numbered, len(words.words)), words.words, "by the company they keep")
    pieces: list[list[int]] = [[] for _ in words.words]
    for passage in read.passages:
        units = passage.units
        for word, start, n_pieces in zip(units.words, units.starts, units.n_pieces, strict=True):
            if word and not pieces[words.index[word]]:
                pieces[words.index[word]] = passage.tokens.ids[start : start + n_pieces]
    table = as_numpy(model.model.encoder.token_table.detach())
    return Relatedness(own_vectors(table, pieces), words.words, BY_OWN_VECTORS)


def _corpus_hash(documents: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for document in documents:
        digest.update(document.encode(errors="replace") + b"\0")
    return digest.hexdigest()
