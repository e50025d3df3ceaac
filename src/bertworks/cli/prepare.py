"""`bertworks prepare`: text to shards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from bertworks.cli.options import Column, FileDocs, LineDocs, OldStrict, SkipBad, Sources, open_corpus
from bertworks.cli.show import AsJson, Quiet, progress_bar, report, resumable, say, show_json
from bertworks.errors import counted


def prepare(
    sources: Sources,
    tokenizer: Annotated[str, typer.Option(help="A folder with a tokenizer, a model folder, or 'minilm'.")],
    out: Annotated[Path, typer.Option(help="The folder for the shards.")],
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; one per core if not given. The result is the same.")
    ] = None,
    words: Annotated[
        Literal["auto", "char"],
        typer.Option(help="Chinese words: auto segments with rjieba, char makes each character a word."),
    ] = "auto",
    column: Column = None,
    line_docs: LineDocs = False,
    file_docs: FileDocs = False,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    strict: OldStrict = False,
) -> None:
    """Tokenize text once for every objective. If interrupted, the same command resumes."""
    from time import monotonic

    from bertworks.data.corpus import describe_documents
    from bertworks.data.prepare import prepare as prepare_corpus
    from bertworks.model.locate import locate
    from bertworks.text.tokenizer import Tokenizer

    start = monotonic()
    corpus = open_corpus(sources, column, line_docs, skip_bad, strict, file_docs)
    with resumable(), progress_bar("preparing", in_bytes=True) as advance:
        loaded = Tokenizer.load(locate(tokenizer))
        for remark in loaded.remarks:
            say(str(remark))
        manifest = prepare_corpus(corpus, loaded, out, words=words, workers=workers, progress=advance)
    seconds = monotonic() - start
    n_bytes = sum(entry.bytes for entry in manifest.shards)
    if as_json:
        show_json({"out": str(out), "seconds": round(seconds, 2), "bytes": n_bytes, **manifest.to_json()})
        return
    counts = manifest.counts
    speed = f", {corpus.position / seconds / 1e6:.1f} MB/s" if corpus.position else ""
    report(
        f"{counts.documents:,} documents{describe_documents(manifest.reading.get('rules', {}))}, "
        f"{counts.sentences:,} sentences, {counts.words:,} words, {counts.tokens:,} tokens"
    )
    report(f"{counts.unknown:,} unknown tokens; {manifest.duplicates:,} duplicate documents left out")
    for remark in manifest.reading["remarks"]:
        report(remark)
    if manifest.segmenter:
        report(f"Chinese words segmented by {manifest.segmenter}")
    report(f"{counted(len(manifest.shards), 'shard')}, {n_bytes / 1e6:.1f} MB, in {out}  ({seconds:.1f} s{speed})")
