"""`bertworks atlas`: what the heads of a model do over a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bertworks.cli.ablation import print_ablation
from bertworks.cli.options import Column, Device, LineDocs, ModelArgument, SkipBad, Threads, load_model, open_corpus
from bertworks.cli.show import AsJson, Quiet, corpus_progress, say, show_result, show_table
from bertworks.errors import BadConfig

if TYPE_CHECKING:
    from bertworks.inspect.atlas import Atlas
    from bertworks.inspect.heads import HeadName


def atlas(
    model: ModelArgument,
    corpus: Annotated[list[str], typer.Option(help="Text to judge the heads on, a blank line between documents.")],
    sentences: Annotated[int, typer.Option(min=1, help="How many passages, or pairs of them.")] = 500,
    relations: Annotated[
        Path | None,
        typer.Option(help="Relations of your own: word pairs, separated by tabs, or a treebank (.conllu)."),
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A threshold, name=value; the JSON has them.")] = None,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="Also measure what the model loses without each head.")
    ] = False,
    replacement: Annotated[
        Literal["mean", "zero", "uniform"] | None,
        typer.Option(help="--ablate: what takes the place of a head's output; its mean, if not said."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Names and evidence: a page (.html), or JSON (.json).")] = None,
    column: Column = None,
    line_docs: LineDocs = False,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Name the heads of a model by what they attend to, over a corpus: next and previous words, the same word, related
    words, pieces of one word, words that predict it, special tokens; each name against decoys, and confirmed by texts
    that were changed."""
    from bertworks.inspect.atlas import atlas as make_atlas
    from bertworks.inspect.naming import Thresholds

    if replacement is not None and not ablate:
        raise BadConfig("--replacement is for --ablate", remedy="both, or neither", code="missing-option")
    thresholds = Thresholds().changed(set_ or ())
    bench = load_model(model, device, threads)
    documents = open_corpus(corpus, column, line_docs, skip_bad)
    with corpus_progress(documents, "passages") as progress:
        model_atlas = make_atlas(
            bench,
            documents,
            sentences=sentences,
            relations_file=relations,
            thresholds=thresholds,
            ablate=(replacement or True) if ablate else False,
            progress=progress,
        )
    show_result(model_atlas, _print, as_json=as_json, out=out, title="atlas", model=model)


def _print(atlas: Atlas) -> None:
    naming = atlas.naming
    rows = [
        (
            f"L{head.layer}H{head.head}",
            head_name.name,
            "strong" if head_name.is_strong else "clear",
            {True: "yes", False: "no", None: ""}[head_name.is_confirmed],
            _evidence(head_name),
        )
        for head in naming.heads
        for head_name in head.names
    ]
    show_table(("head", "name", "grade", "confirmed", "evidence"), rows)
    n_named = sum(bool(head.names) for head in naming.heads)
    text = f"{atlas.n_passages} passages of {atlas.n_documents} documents, up to {atlas.max_tokens} tokens each"
    say(f"{n_named} of {len(naming.heads)} heads have a name, over {text}")
    say(f"with decoys in the place of targets: {naming.null_names} names in {naming.null_tests} tests")
    for name, reason in naming.unseen.items():
        say(f"{name}: {reason}")
    if atlas.ablation is not None:
        print_ablation(atlas.ablation)


def _evidence(head_name: HeadName) -> str:
    """What decides, with its lower bound; then what interventions came to, and notes."""
    decides = [f"{what} {value:.2f} (at least {lower:.2f})" for what, value, lower, _ in head_name.conditions]
    deciding = {what for what, *_ in head_name.conditions}
    others = [f"{title} {value:.2f}" for title, value in head_name.numbers.items() if title not in deciding]
    return ", ".join([*decides, *others, *([head_name.by] if head_name.by else []), *head_name.notes])
