"""`bertworks vocab`: train a vocabulary, see how well one fits, extend one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from bertworks.cli.options import Column, LineDocs, OldStrict, SkipBad, Sources, open_corpus
from bertworks.cli.show import AsJson, Quiet, console, progress_bar, report, show_json

app = typer.Typer(help="Train a vocabulary, see how well one fits a text, extend one.", no_args_is_help=True)
SampleSize = Annotated[
    int, typer.Option("--sample-mb", min=1, max=1_000_000, help="Size of the random sample, in million characters.")
]
Seed = Annotated[int, typer.Option(min=0, max=2**63, help="Random seed of the sample.")]
ModelFolder = Annotated[
    str, typer.Argument(metavar="MODEL", help="A model folder, a folder with a tokenizer, or 'minilm'.")
]


@app.command("train")
def train(
    sources: Sources,
    out: Annotated[Path, typer.Option(help="A new folder for the tokenizer.")],
    size: Annotated[int, typer.Option(min=1, max=10_000_000, help="Vocabulary size: number of entries.")] = 30_522,
    kind: Annotated[
        Literal["wordpiece", "bpe", "unigram"], typer.Option(help="As in BERT, RoBERTa (byte-level), ALBERT.")
    ] = "wordpiece",
    cased: Annotated[
        bool, typer.Option("--cased", help="Keep capitals and accents; bpe keeps accents always.")
    ] = False,
    sample_mb: SampleSize = 100,
    seed: Seed = 0,
    column: Column = None,
    line_docs: LineDocs = False,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    strict: OldStrict = False,
) -> None:
    """Learn a vocabulary. The same text gives the same vocabulary, whatever the number of threads."""
    from time import monotonic

    from bertworks.runs.vocabulary import train_on_corpus

    start = monotonic()
    corpus = open_corpus(sources, column, line_docs, skip_bad, strict)
    with progress_bar("reading", in_bytes=True) as advance:
        tokenizer, sample = train_on_corpus(
            corpus,
            out,
            kind=kind,
            size=size,
            cased=cased,
            max_characters=sample_mb * 1_000_000,
            seed=seed,
            progress=advance,
        )
    seconds = monotonic() - start
    if as_json:
        counts = {"size": tokenizer.vocab_size, "characters": sample.sampled}
        show_json({"out": str(out), "kind": kind, **counts, "seconds": round(seconds, 2)})
        return
    for remark in corpus.stats.remarks():
        report(str(remark))
    report(f"{tokenizer.vocab_size:,} entries, {kind}, {'cased' if cased else 'uncased'}, learned from {sample}")
    if tokenizer.vocab_size < size:
        report(f"{size:,} entries were requested: the text has no more")
    report(f"written to {out}  ({seconds:.1f} s)")


@app.command("check")
def check(
    model: ModelFolder,
    sources: Sources,
    worst: Annotated[int, typer.Option(min=0, help="Words to show for each script.")] = 12,
    sample_mb: SampleSize = 100,
    seed: Seed = 0,
    column: Column = None,
    line_docs: LineDocs = False,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    strict: OldStrict = False,
) -> None:
    """How well a vocabulary fits a text: pieces per word (fertility), unknown words, those that split worst, by
    script."""
    from dataclasses import asdict

    from bertworks.model.locate import locate
    from bertworks.runs.tables import vocabulary_table
    from bertworks.text.coverage import measure_coverage
    from bertworks.text.tokenizer import Tokenizer
    from bertworks.text.words import Sample

    tokenizer = Tokenizer.load(locate(model))
    corpus = open_corpus(sources, column, line_docs, skip_bad, strict)
    with progress_bar("reading", in_bytes=True) as advance:
        sample = Sample.of(corpus.paragraphs(advance), sample_mb * 1_000_000, seed)
    coverage = measure_coverage(tokenizer, sample.texts)
    scripts = coverage.scripts(worst)
    if as_json:
        values = {
            name: {**asdict(script), "pieces_per_word": script.pieces_per_word} for name, script in scripts.items()
        }
        unknown = {str(kind): count for kind, count in coverage.unknown_kinds().items()}
        show_json({"pieces_per_word": coverage.pieces_per_word, "unknown": unknown, "scripts": values})
        return
    out = console()
    for remark in corpus.stats.remarks():
        out.print(str(remark), markup=False)
    out.print(f"{sample}; {coverage.occurrences:,} words, {coverage.pieces_per_word:.3f} pieces per word (fertility)")
    out.print(vocabulary_table(scripts, tokenizer))
    for kind, count in coverage.unknown_kinds().most_common():
        out.print(f"unknown: {count:,} {kind}", markup=False)


@app.command("extend")
def extend(
    model: ModelFolder,
    sources: Sources,
    add: Annotated[int, typer.Option(min=0, help="Words to add at most.")],
    out: Annotated[Path, typer.Option(help="A new folder for the model.")],
    aliases: Annotated[
        Path | None, typer.Option(help="A file of variant, tab, form: variants get the form's id.")
    ] = None,
    sample_mb: SampleSize = 100,
    seed: Seed = 0,
    column: Column = None,
    line_docs: LineDocs = False,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    strict: OldStrict = False,
) -> None:
    """Add the words that cost most pieces to the vocabulary of a model; its embedding grows with it."""
    from bertworks.runs.vocabulary import extend_model
    from bertworks.text.aliases import read_aliases

    forms = {} if aliases is None else read_aliases(aliases)
    corpus = open_corpus(sources, column, line_docs, skip_bad, strict)
    with progress_bar("reading", in_bytes=True) as advance:
        extension = extend_model(
            model, corpus.paragraphs(advance), add, forms, out, max_characters=sample_mb * 1_000_000, seed=seed
        )
    if as_json:
        show_json({"out": str(out), **extension.as_dict()})
        return
    for line in [*map(str, corpus.stats.remarks()), *extension.lines(), f"written to {out}"]:
        report(line)
