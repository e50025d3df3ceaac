"""`bertworks atlas`: what the heads of a model do over a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bertworks.cli.options import Column, Device, LineDocs, ModelArgument, SkipBad, Threads, load_model
from bertworks.cli.show import AsJson, Quiet, progress_bar, say, show_json, show_table

if TYPE_CHECKING:
    from bertworks.inspect.ablation import Ablation
    from bertworks.inspect.atlas import Atlas


def atlas(
    model: ModelArgument,
    corpus: Annotated[list[str], typer.Option(help="Text to judge the heads on, a blank line between documents.")],
    sentences: Annotated[int, typer.Option(min=1, help="How many passages, or pairs of them.")] = 500,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="Also measure what the model loses without each head.")
    ] = False,
    replacement: Annotated[
        Literal["mean", "zero", "uniform"], typer.Option(help="--ablate: what takes the place of a head's output.")
    ] = "mean",
    out: Annotated[Path | None, typer.Option(help="Names and evidence: a page (.html), or JSON (.json).")] = None,
    column: Column = None,
    line_docs: LineDocs = False,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Name the heads of a model by what they attend to, over a corpus: next and previous words, the same word, pieces
    of one word, special tokens; each name against decoys, and confirmed by texts that were changed."""
    from bertworks.data.corpus import Corpus, ReadOptions
    from bertworks.inspect.atlas import atlas as make_atlas

    bench = load_model(model, device, threads)
    documents = Corpus(corpus, ReadOptions(column, line_docs, skip_bad))
    with progress_bar("passages") as progress:
        found = make_atlas(
            bench, documents, sentences=sentences, ablate=replacement if ablate else False, progress=progress
        )
    if as_json:
        show_json(found.as_dict())
    else:
        _print(found)
    if out is not None:
        found.save(out, model=model)
        say(f"atlas     {out}")


def _print(found: Atlas) -> None:
    heads = found.findings.heads
    rows = [
        (
            f"L{head.layer}H{head.head}",
            named.name,
            "strong" if named.is_strong else "",
            {True: "yes", False: "no", None: ""}[named.is_confirmed],
            ", ".join(f"{title} {value:.2f}" for title, value in named.numbers.items()),
        )
        for head in heads
        for named in head.names
    ]
    show_table(("head", "name", "", "confirmed", "evidence"), rows)
    n_named = sum(bool(head.names) for head in heads)
    text = f"{found.n_passages} passages of {found.n_documents} documents"
    say(f"{n_named} of {len(heads)} heads have a name, over {text}")
    for name, reason in found.findings.unseen.items():
        say(f"{name}: {reason}")
    if found.ablation is not None:
        print_ablation(found.ablation)


def print_ablation(ablation: Ablation) -> None:
    title = ablation.measure
    heads = ablation.heads
    if isinstance(heads, str):
        say(f"importance: {heads}")
    else:
        found = [
            (float(heads.change[layer, head]), layer, head, verdict)
            for layer, row in enumerate(heads.verdicts)
            for head, verdict in enumerate(row)
            if verdict
        ]
        rows = [
            (f"L{layer}H{head}", f"{change:+.4f}", _interval(heads.low[layer, head], heads.high[layer, head]), verdict)
            for change, layer, head, verdict in sorted(found, key=lambda row: -abs(row[0]))
        ]
        show_table(("without", title, "95 %, all together", ""), rows)
        text = f"{ablation.n_sequences} passages of {ablation.n_documents} other documents"
        against = "more than the average head" if ablation.is_distance else "at all"
        say(f"{len(rows)} of {heads.change.size} heads change the {title} {against}, over {text}")
    check = ablation.same_word
    if isinstance(check, str):
        say(f"same-word check: {check}")
        return
    names = " ".join(f"L{layer}H{head}" for layer, head in check.heads)
    mean, *bounds = check.difference
    than_others, *bounds_of_others = check.against_others
    say(f"without {names}, words that recur lose {check.change[0]:+.3f}, matched words {check.change[1]:+.3f}")
    say(f"  that is {mean:+.3f} more ({_interval(*bounds)})")
    say(f"  and {than_others:+.3f} more than without other heads ({_interval(*bounds_of_others)})")
    say(f"  {'confirmed' if check.is_confirmed else 'not shown'}: {check.n_pairs} pairs, {check.n_types} words")


def _interval(low: float, high: float) -> str:
    return f"{low:+.4f} … {high:+.4f}"
