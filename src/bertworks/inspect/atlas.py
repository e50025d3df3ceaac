"""An atlas: the heads of a model named over a corpus, as an object, as JSON and as a table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bertworks.errors import BadText
from bertworks.files import atomic_write
from bertworks.inspect.ablation import N_RECURRING, Ablation, ablate_heads
from bertworks.inspect.heads import Findings, find_names
from bertworks.inspect.naming import Thresholds
from bertworks.inspect.passages import WORD, Passages, read_passages
from bertworks.inspect.probes import own_measure
from bertworks.inspect.related import MIN_CORPUS_WORDS, Relatedness, word_vectors
from bertworks.inspect.replacing import Replacement
from bertworks.inspect.running import Progress
from bertworks.model.model import Model
from bertworks.model.pooling import Pooling
from bertworks.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bertworks.inspect.compare import Comparison

FORMAT = 1
MAX_RELATED_CHARACTERS = 6_000_000  # of the corpus, to tell which words are related


class LoadedModel(Protocol):
    """A `Workbench`, which is above this package."""

    model: Model
    pooling: Pooling

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def limit(self) -> int: ...


@dataclass(frozen=True)
class Atlas:
    """The heads of a model with their names, and the evidence for them."""

    findings: Findings
    model_hash: str
    corpus_hash: str
    n_passages: int
    n_documents: int
    max_tokens: int
    ablation: Ablation | None = None

    def names(self, layer: int, head: int) -> list[str]:
        return [named.name for named in self.findings.head(layer, head).names]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One for each head."""
        return [
            {
                "layer": head.layer,
                "head": head.head,
                "names": [named.name for named in head.names],
                "evidence": {
                    named.name: {
                        "strong": named.is_strong,
                        "confirmed": named.is_confirmed,
                        "numbers": _rounded(named.numbers),
                    }
                    for named in head.names
                },
                "description": _rounded(head.description),
                **({} if self.ablation is None else {"importance": self.ablation.of_head(head.layer, head.head)}),
            }
            for head in self.findings.heads
        ]

    def as_dict(self) -> dict[str, Any]:
        """The same for the same input, to the byte."""
        return {
            "format": FORMAT,
            "model": self.model_hash,
            "corpus": self.corpus_hash,
            "passages": self.n_passages,
            "documents": self.n_documents,
            "max_tokens": self.max_tokens,
            "thresholds": asdict(self.findings.thresholds),
            "unseen": dict(self.findings.unseen),
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
            (row["layer"], row["head"]): {name: found.get("examples", []) for name, found in row["evidence"].items()}
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
            from bertworks.inspect.atlas_page import write_atlas_page  # heavy, and not always needed

            return write_atlas_page(Path(path), self.as_dict(), model=model)
        with atomic_write(Path(path)) as file:
            file.write((json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n").encode())
        return Path(path)


def _rounded(numbers: Mapping[str, float]) -> dict[str, float]:
    return {title: round(value, 6) for title, value in numbers.items()}


def atlas(
    model: LoadedModel,
    texts: Iterable[str],
    *,
    sentences: int = 500,
    thresholds: Thresholds | None = None,
    ablate: bool | Replacement = False,
    progress: Progress = lambda done, total: None,
) -> Atlas:
    """Name the heads of a model over documents; `sentences`: how many passages, or pairs of them, are read. `ablate`:
    also measure what each head is worth, on other passages; with it replaced by its mean, or as this says."""
    documents = list(first_documents(texts))
    tokenizer = model.tokenizer
    max_tokens = min(128, model.limit)
    pairs = reads_pairs(model)
    read = read_passages(documents, tokenizer, n=sentences, pairs=pairs, max_tokens=max_tokens)
    if not read.passages:
        cause = "no passages in this text"
        remedy = "sentences, several in a document; a blank line ends one"
        raise BadText(cause, remedy=remedy, code="no-passages")
    special: dict[str, int] = {name: tokenizer.id_of(name) for name in ("cls", "sep") if name in tokenizer.special}
    findings = find_names(
        model.model,
        read.passages,
        read.words,
        special,
        relatedness=_relatedness(documents, read),
        thresholds=thresholds,
        progress=progress,
    )
    replacement: Replacement = "mean" if isinstance(ablate, bool) else ablate
    return Atlas(
        findings,
        model_hash=_model_hash(model.model),
        corpus_hash=_corpus_hash(read),
        n_passages=len(read.passages),
        n_documents=len({passage.document for passage in read.passages}),
        max_tokens=max_tokens,
        ablation=_ablation(model, documents, findings, read, max_tokens, replacement, progress) if ablate else None,
    )


def _ablation(
    model: LoadedModel,
    documents: Sequence[str],
    findings: Findings,
    read: Passages,
    max_tokens: int,
    replacement: Replacement,
    progress: Progress,
) -> Ablation:
    """On passages that the names are not of."""
    n = len(read.passages) + N_RECURRING
    more = read_passages(documents, model.tokenizer, n=n, pairs=reads_pairs(model), max_tokens=max_tokens)
    used = {passage.texts for passage in read.passages}
    return ablate_heads(
        model.model,
        own_measure(model.model, model.tokenizer, model.pooling),
        findings.heads,
        read.passages,
        [passage for passage in more.passages if passage.texts not in used],
        more.words,
        replacement=replacement,
        progress=progress,
    )


def reads_pairs(model: LoadedModel) -> bool:
    """Whether it was made for pairs of texts: not from left to right, and with a segment for each."""
    encoder = model.model.config.encoder
    if getattr(encoder, "causal", False):
        return False
    n_segments = encoder.n_segments
    return n_segments == 0 or max(model.tokenizer.pair_template.segments) < n_segments


def first_documents(texts: Iterable[str], max_characters: int = 20_000_000) -> Iterator[str]:
    """As much of a corpus as is read."""
    n_characters = 0
    for text in texts:
        if n_characters > max_characters:
            return
        n_characters += len(text)
        yield text


def _relatedness(documents: Sequence[str], read: Passages) -> Relatedness | None:
    numbered: list[list[int]] = []
    n_characters = n_words = 0
    for document in documents:
        if n_characters > MAX_RELATED_CHARACTERS:
            break
        n_characters += len(document)
        numbered.append([read.words.index[word] for word in WORD.findall(document.lower()) if word in read.words.index])
        n_words += len(numbered[-1])
    if n_words < MIN_CORPUS_WORDS:
        return None
    return Relatedness(word_vectors(numbered, len(read.words.words)), read.words.words)


def _corpus_hash(read: Passages) -> str:
    return hashlib.sha256("\0".join(text for passage in read.passages for text in passage.texts).encode()).hexdigest()


def _model_hash(model: Model) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(model.encoder.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
