"""Whether runs that an older checkout made go on with this tree's code, to the bit.

The older code makes small runs of every kind from made-up text: pre-trainings of every objective, fine-tunings of every
shape. This tree's code then

- resumes a copy of each that was cut back to a checkpoint in its middle,
- begins each anew, with the same settings,
- evaluates the finished fine-tunings and predicts with them, as the older code does too,
- makes vectors of texts.

Weights, what the optimiser remembers, metrics, predictions and vectors have to be the same to the bit; keys that have
other names today are compared under today's. What version 0.2 decides in another way is left out of the comparison:
whether a model is calibrated, and intervals corrected for choosing the best evaluation. A head that was divided
by its temperature has to be the older head divided by it, to the bit. One thread, tiny models, one line for each run;
exit code 1 if anything differs.

    git worktree add ../old b9e4e56
    python benchmarks/old_runs.py ../old
    python benchmarks/old_runs.py ../old --keep FOLDER     older runs stay in FOLDER, for the next time
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NOTE = "made-by-old-runs"
STEPS = 18
LOOP = {"train.checkpoint_every": 4, "train.keep": 99, "train.evaluations": 3, "train.log_every": 5}
TINY = {
    "model.n_layers": 2,
    "model.hidden_size": 32,
    "model.n_heads": 4,
    "model.ffn_size": 64,
    "data.max_length": 48,
    "data.held_out": 0.1,
    "train.batch_tokens": 512,
    "train.evaluate_tokens": 1024,
    "train.dropout": 0.1,
}
RENAMED = {  # keys of results, evaluations and ledgers before version 0.2
    "measures": "metrics",
    "evidence": "example_scores",
    "others": "extra_eval",
    "hopeless": "pruned",
    "given_up": "pruned",
    "deviation": "std",
    "learned": "artifact",
    "mean_error": "mae",
    "measure": "metric",
    "smoothing": "label_smoothing",
    "hits": "true_positives",
    "there": "support",
    "found": "predicted",
}
DROPPED = {
    "wrong",  # of an error that is shown: always true
    *("special", "words", "temperature_in_head", "selection", "baseline", "cross_fitted", "last"),  # newer than that
    *("calibration", "temperature", "errors"),  # another rule for when to calibrate; errors are sorted by confidence
    "no_answer",  # a threshold of logits, divided by the temperature as they are
}
RENAMED_PREDICTIONS = {"blank": "no_answer_score", "best": "best_span", "kind": "type"}
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Training:
    """A run, as both versions are asked for it. `start`: the run that it goes on from; `data`: a vocabulary's shards,
    or a table."""

    name: str
    data: str
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    start: str | None = None
    task: str | None = None  # of a fine-tuning

    def command(self, folder: Path, out: Path) -> list[str]:
        """For the older command line."""
        options = {**self.options, "steps": STEPS, "out": out}
        if self.task is None:
            words = ["pretrain", folder / "shards" / self.data]
            options |= {"init": folder / "old" / self.start} if self.start else {}
        else:
            words = ["finetune", self.task]
            options |= {"train": _table(folder, self.data, "train"), "dev": _table(folder, self.data, "dev")}
            options |= {"model": folder / "old" / str(self.start)}
        for name, value in options.items():
            words += [f"--{name}", value]
        for key, value in self.settings.items():
            words += ["--set", f"{key}={json.dumps(value)}"]
        return [str(word) for word in words]

    def arguments(self, folder: Path, out: Path) -> dict[str, Any]:
        """For `bertworks.pretrain` and `bertworks.finetune`."""
        named: dict[str, Any] = {**self.options, "steps": STEPS, "out": str(out), "settings": self.settings}
        if self.task is None:
            named["shards"] = str(folder / "shards" / self.data)
            return named | ({"model": str(folder / "old" / self.start)} if self.start else {})
        named |= {"data": str(_table(folder, self.data, "train")), "dev": str(_table(folder, self.data, "dev"))}
        return named | {"task": self.task, "model": str(folder / "old" / str(self.start))}


def pretraining(name: str, data: str, preset: str | None, start: str | None = None, **options: Any) -> Training:
    settings = {**LOOP, **TINY, **options.pop("settings", {})}
    if start is not None:
        settings = {key: value for key, value in settings.items() if not key.startswith("model.")}
    return Training(name, data, {**({"preset": preset} if preset else {}), **options}, settings, start)


def finetuning(name: str, task: str, data: str, start: str, settings: dict[str, Any], **options: Any) -> Training:
    return Training(name, data, options, {**LOOP, "train.batch_size": 8, **settings}, start, task)


TRAININGS = (
    pretraining("bert", "wordpiece", "bert-mini", settings={"optim.clip": 0.5, "data.short_rate": 0.2}),
    pretraining(
        "roberta",
        "bpe",
        "roberta-mini",
        masking="word",
        settings={"train.micro_tokens": 200, "train.start": "random", "optim.lr": 2e-4},
    ),
    pretraining("albert", "unigram", "albert-mini"),
    pretraining("electra", "wordpiece", "electra-mini"),
    pretraining("xlnet", "unigram", "xlnet-mini", settings={"optim.lr": 2e-4}),
    pretraining("gpt", "bpe", "gpt-mini", settings={"train.recompute": True}),
    pretraining("continued", "wordpiece", None, "bert", objective="mlm", masking="span"),
    finetuning("classify", "classify", "classes", "bert", {"task.smoothing": 0.1, "task.class_weights": "balanced"}),
    finetuning("pair", "pair", "pairs", "roberta", {"task.measure": "f1", "train.attention_dropout": 0.1}),
    finetuning("regress", "regress", "scores", "albert", {"optim.clip": 0.3}),
    finetuning("multilabel", "multilabel", "topics", "electra", {"train.freeze": 1}),
    finetuning("tag", "tag", "names", "xlnet", {"task.smoothing": 0.05}),
    finetuning("span", "span", "answers", "bert", {"train.reinit": 1}),
    finetuning("span, no answer", "span", "silence", "electra", {"data.max_length": 40, "data.overlap": 8}),
    finetuning("choice", "choice", "choices", "gpt", {}),
    finetuning("windows", "classify", "long", "bert", {"data.max_length": 24, "data.overlap": 6}),
    finetuning("two seeds", "classify", "classes", "electra", {}, seeds=2),
    finetuning("two seeds, scores", "regress", "repeated", "bert", {}, seeds=2),
    finetuning("on from a run", "classify", "more", "classify", {"optim.lr": 1e-3}),
)


# ---------------------------------------------------------------------- made-up text

PEOPLE = "Anna Boris Clara David Elena Felix Greta Hugo Irma Jonas".split()
PLACES = ["Bonn", "Lyon", "Turin", "Porto", "Ghent", "Malmo", "New York", "Los Angeles"]
NOUNS = "letter garden window engine bridge river kettle ladder mirror basket candle carpet".split()
VERBS = "found painted carried repaired sold borrowed watched opened".split()
ADJECTIVES = {
    "good": "lovely bright splendid".split(),
    "bad": "broken dreadful dirty".split(),
    "plain": ["old", "small"],
}
TOPICS = {"money": "bill price".split(), "travel": "train ticket".split(), "food": "bread soup".split()}


def sentence(draw: random.Random, mood: str | None = None, noun: str | None = None, person: str | None = None) -> str:
    person, noun = person or draw.choice(PEOPLE), noun or draw.choice(NOUNS)
    adjective = draw.choice(ADJECTIVES[mood or draw.choice(list(ADJECTIVES))])
    return f"{person} {draw.choice(VERBS)} the {adjective} {noun} in {draw.choice(PLACES)}."


def corpus(draw: random.Random) -> str:
    return "\n\n".join(" ".join(sentence(draw) for _ in range(8)) for _ in range(30)) + "\n"


def of_class(draw: random.Random, sentences: int = 1) -> dict[str, Any]:
    label = draw.choice(["good", "good", "bad", "plain"])  # not balanced
    return {"text": " ".join([*(sentence(draw) for _ in range(sentences - 1)), sentence(draw, label)]), "label": label}


def of_pair(draw: random.Random) -> dict[str, Any]:
    noun, same = draw.choice(NOUNS), draw.random() < 0.5
    second = noun if same else draw.choice([other for other in NOUNS if other != noun])
    texts = {"sentence1": sentence(draw, noun=noun), "sentence2": sentence(draw, noun=second)}
    return {**texts, "label": "yes" if same else "no"}


def of_score(draw: random.Random) -> dict[str, Any]:
    mood = draw.choice(list(ADJECTIVES))
    return {"text": sentence(draw, mood), "score": {"good": 4, "plain": 2, "bad": 0}[mood] + draw.randrange(8) / 8}


def of_topics(draw: random.Random) -> dict[str, Any]:
    topics = sorted(draw.sample(list(TOPICS), draw.randrange(1, 3)))
    words = " and the ".join(draw.choice(TOPICS[topic]) for topic in topics)
    return {"text": f"{sentence(draw)} It was about the {words}.", "labels": "|".join(topics)}


def of_names(draw: random.Random) -> dict[str, Any]:
    words = sentence(draw).replace(".", " .").split()
    place = words.index("in") + 1
    inside = [f"{'B' if at == place else 'I'}-LOC" for at in range(place, len(words) - 1)]
    return {"words": words, "tags": ["B-PER", *["O"] * (place - 1), *inside, "O"]}


def of_answer(draw: random.Random, silent: float = 0.0) -> dict[str, Any]:
    people, (first, second, other) = draw.sample(PEOPLE, 2), draw.sample(NOUNS, 3)
    context = " ".join(
        sentence(draw, noun=noun, person=name) for noun, name in zip((first, second), people, strict=True)
    )
    if draw.random() < silent:
        return {"question": f"Who has the {other}?", "context": context, "answer": ""}
    return {"question": f"Who has the {second}?", "context": context, "answer": people[1]}


def of_choice(draw: random.Random) -> dict[str, Any]:
    nouns, right = draw.sample(NOUNS, 3), draw.randrange(3)
    choices = {f"choice{at}": f"It was the {noun}." for at, noun in enumerate(nouns)}
    return {"text": sentence(draw, noun=nouns[right]), **choices, "label": right}


TABLES = {  # a file's ending, and its rows
    "classes": (".csv", of_class),
    "more": (".tsv", of_class),
    "long": (".jsonl", lambda draw: of_class(draw, draw.randrange(2, 9))),
    "pairs": (".tsv", of_pair),
    "scores": (".csv", of_score),
    "repeated": (".csv", of_score),
    "topics": (".csv", of_topics),
    "names": (".jsonl", of_names),
    "answers": (".jsonl", of_answer),
    "silence": (".jsonl", lambda draw: of_answer(draw, silent=0.4)),
    "choices": (".csv", of_choice),
}
SIZES = {"train": 44, "dev": 20, "test": 24}  # 44: epochs end between checkpoints
ASKED = {"pairs": ("sentence1", "sentence2"), "answers": ("question", "context"), "silence": ("question", "context")}


def _table(folder: Path, name: str, split: str) -> Path:
    return folder / "tables" / f"{name}-{split}{TABLES[name][0]}"


def write_table(path: Path, rows: Rows) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)


def inputs(name: str, rows: Rows) -> list[Any]:
    """What a model of this table is asked, in Python."""
    if name == "choices":
        return [[row["text"], *(row[f"choice{at}"] for at in range(3))] for row in rows]
    if name == "names":
        return [" ".join(row["words"]) for row in rows]
    if name in ASKED:
        return [[row[column] for column in ASKED[name]] for row in rows]
    return [row["text"] for row in rows]


def short_texts() -> list[str]:
    draw = random.Random(9)
    texts = [" ".join(sentence(draw) for _ in range(draw.randrange(1, 4))) for _ in range(200)]
    return [text[: draw.randrange(8, len(text))] for text in texts]


def write_data(folder: Path) -> dict[str, list[Any]]:
    """The same files every time; what models are asked, by table."""
    (folder / "corpus.txt").write_text(corpus(random.Random(0)), encoding="utf-8")
    asked, rows = {}, []
    for name, (_, row) in TABLES.items():
        for seed, (split, size) in enumerate(SIZES.items()):
            draw = random.Random(f"{name} {seed}")
            before, rows = rows, [row(draw) for _ in range(size)]
            if name == "repeated" and split == "dev":  # which is evaluated once more without what train has too
                rows[:4] = before[:4]
            write_table(_table(folder, name, split), rows)
        asked[name] = inputs(name, rows)
        lines = ("\t".join(one) if isinstance(one, list) else one for one in asked[name])
        (folder / "tables" / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return asked


# ---------------------------------------------------------------------- the older code


def environment(source: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}


def run_old(old: Path, *words: str) -> str:
    """The older command line."""
    call = [sys.executable, "-m", "bertworks", *words]
    done = subprocess.run(call, env=environment(old / "src"), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the older code: bertworks {' '.join(words)}\n{done.stderr[-2000:]}")
    return done.stdout


def claim(old: Path, folder: Path) -> None:
    """What is kept here from before stays if this script and the older code are still the same."""
    note, digest = folder / NOTE, hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted((old / "src").rglob("*.py")):
        digest.update(path.read_bytes())
    if any(folder.iterdir()) and not note.is_file():
        sys.exit(f"{folder}: not empty, and not of this script")
    if note.is_file() and note.read_text() != digest.hexdigest():
        for name in ("vocabularies", "shards", "old"):
            shutil.rmtree(folder / name, ignore_errors=True)
    note.write_text(digest.hexdigest())


def make_shards(old: Path, folder: Path) -> None:
    text = str(folder / "corpus.txt")
    for kind in ("wordpiece", "bpe", "unigram"):
        vocabulary, shards = folder / "vocabularies" / kind, folder / "shards" / kind
        vocabulary.parent.mkdir(exist_ok=True)
        shards.parent.mkdir(exist_ok=True)
        if not vocabulary.is_dir():
            run_old(old, "vocab", "train", text, "--kind", kind, "--size", "320", "--out", str(vocabulary))
        if not (shards / "manifest.json").is_file():
            prepared = ["--tokenizer", str(vocabulary), "--out", str(shards), "--workers", "1"]
            run_old(old, "prepare", text, *prepared)


def make_run(old: Path, folder: Path, training: Training) -> Path:
    """A run of the older code; a complete one is taken as it is."""
    out, note = folder / "old" / training.name, folder / "old" / f"{training.name}.complete"
    if not note.is_file():
        shutil.rmtree(out, ignore_errors=True)
        out.parent.mkdir(exist_ok=True)
        run_old(old, *training.command(folder, out))
        note.touch()
    return out


# ---------------------------------------------------------------------- runs, cut and compared


def parts_of(run: Path) -> list[Path]:
    """Folders with checkpoints: the run's own, or those of its seeds."""
    return [run] if (run / "checkpoints").is_dir() else sorted(run.glob("seed-*"))


def checkpoints(run: Path) -> dict[int, Path]:
    return {int(place.name.removeprefix("step-")): place for place in sorted((run / "checkpoints").glob("step-*"))}


def cut_back(run: Path) -> int:
    """To a checkpoint in its middle, as if the process had been killed there; of several seeds, the last one's. Returns
    the step."""
    if not (run / "checkpoints").is_dir():
        shutil.rmtree(run / "model")
    part, ends = parts_of(run)[-1], {run, parts_of(run)[-1]}
    places = checkpoints(part)
    last = max(places)
    middle = max(step for step in places if step <= last // 2)
    if json.loads((places[last] / "state.json").read_text())["state"]["best_step"] > middle:
        spoil(part / "model")
    for step, place in places.items():
        if step > middle:
            shutil.rmtree(place)
    for folder in ends:
        for name in ("results.json", "report.html"):
            (folder / name).unlink(missing_ok=True)
    return middle


EMBEDDINGS = ("word_embed", "wte", "embed.tokens")


def spoil(model: Path) -> None:
    """The model of the end would be right even if nobody wrote it again. Rows of the embedding that a fine-tuning never
    sees are in no checkpoint, so the embedding stays."""
    from safetensors.torch import load_file, save_file

    for path in model.rglob("*.safetensors"):
        tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and not any(part in name for part in EMBEDDINGS):
                tensor += 0.5
        save_file(tensors, path, metadata={"format": "pt"})


def different_tensors(old: Path, new: Path) -> list[str]:
    """Of a run: the last checkpoint of each part, and the model."""
    found = []
    for one, other in zip(parts_of(old), parts_of(new), strict=True):
        last, now = max(checkpoints(one).items()), max(checkpoints(other).items())
        if last[0] != now[0]:
            found.append(f"ends at step {now[0]}, not {last[0]}")
        for name in ("weights.safetensors", "optimiser.safetensors"):
            found += different(last[1] / name, now[1] / name)
    models = sorted(path.relative_to(old) for path in old.rglob("*.safetensors") if "checkpoints" not in path.parts)
    assert models
    for path in models:
        found += different(old / path, new / path, temperature_in_head((new / path).parent))
    return found


def temperature_in_head(model: Path) -> float:
    """What the head of a saved model was divided by."""
    file = model / "bertworks.json"
    artifact = json.loads(file.read_text()).get("task") if file.is_file() else None
    return artifact["temperature"] if artifact and artifact.get("temperature_in_head") else 1.0


OUTPUT_LAYER = re.compile(r"(classifier|classifier\.out_proj|qa_outputs|heads\.\w+\.out)\.(weight|bias)")


def different(old: Path, new: Path, temperature: float = 1.0) -> list[str]:
    """Names of tensors that are not the same to the bit, or not in both files. `temperature`: what the new head was
    divided by."""
    from safetensors.torch import load_file

    from bertworks.train.checkpoint import OLD_WEIGHT_NAMES

    if not new.is_file():
        return [f"{new.name} is missing"]
    before, now = load_file(old), load_file(new)
    for name, today in OLD_WEIGHT_NAMES.items():
        before = {key.replace(name, today): tensor for key, tensor in before.items()}
    if temperature != 1.0:
        for name in filter(OUTPUT_LAYER.fullmatch, before):
            before[name] = before[name] * (1 / temperature)

    def bits(tensors: dict[str, Any], name: str) -> tuple[Any, ...]:
        tensor = tensors.get(name)
        return () if tensor is None else (tensor.dtype, tensor.shape, tensor.numpy().tobytes())

    names = sorted(before.keys() | now.keys())
    assert names
    return [f"{new.name}: {name}" for name in names if bits(before, name) != bits(now, name)]


def today(value: Any, renamed: dict[str, str]) -> Any:
    """With the keys of today."""
    if isinstance(value, dict):
        return {renamed.get(key, key): today(one, renamed) for key, one in value.items() if key not in DROPPED}
    return [today(one, renamed) for one in value] if isinstance(value, list) else value


def different_values(old: Any, new: Any, place: str = "") -> list[str]:
    """Where two JSON values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(key for key in new if key not in old)]
        return [one for key in keys for one in different_values(old.get(key), new.get(key), f"{place}.{key}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [one for at, (a, b) in pairs for one in different_values(a, b, f"{place}[{at}]")]
    same = repr(old) == repr(new)  # NaN is like NaN, 1 is not like 1.0
    return [] if same else [f"{place or 'all'}: {str(old)[:60]} then, {str(new)[:60]} now"]


# ---------------------------------------------------------------------- this tree's code


def run_new(*jobs: dict[str, Any], source: Path = ROOT / "src") -> list[dict[str, Any]]:
    """Jobs in a process of their own; of each what came of it, or the error."""
    call = [sys.executable, __file__, "--work"]
    text = json.dumps({"source": str(source), "jobs": jobs})
    done = subprocess.run(call, env=environment(source), input=text, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return [{"error": (done.stderr.strip().splitlines() or ["the process ended"])[-1]} for _ in jobs]
    return json.loads(lines[-1])


def work() -> None:
    """In such a process."""
    import torch

    import bertworks

    torch.set_num_threads(1)
    asked = json.load(sys.stdin)
    if not Path(str(bertworks.__file__)).is_relative_to(asked["source"]):
        sys.exit(f"this is the code of {bertworks.__file__}, not of {asked['source']}")
    done = []
    for job in asked["jobs"]:
        try:
            done.append(WORK[job.pop("job")](**job))
        except Exception as error:  # whatever it is, it is a difference
            done.append({"error": f"{type(error).__name__}: {error}"})
    print(json.dumps(done))


def work_resume(run: str) -> dict[str, Any]:
    import bertworks

    resumed = []
    bertworks.Run(run).resume(on_event=lambda event: resumed.append(event.step) if event.kind == "resume" else None)
    return {"from": resumed}


def work_train(verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
    import bertworks

    getattr(bertworks, verb)(**arguments)
    return {}


def work_describe(run: str) -> dict[str, Any]:
    """What a run's own files say: evaluations on the way, and the results of a fine-tuning."""
    import bertworks

    parts = [bertworks.Run(part) for part in parts_of(Path(run))]
    metrics = [[event.step, event.metrics] for part in parts for event in part.events if event.kind == "eval"]
    results = bertworks.Run(run).results if (Path(run) / "results.json").is_file() else {}
    for part in filter(None, (results, results.get("seeds"))):
        part.pop("intervals", None)  # reckon with the choice; those of `evaluate` have to be the same
    return {"evaluations": metrics, "results": results}


def work_evaluate(run: str, data: str) -> dict[str, Any]:
    import bertworks

    found = bertworks.Run(run).evaluate(data)
    results, others = found.results, found.results.extra_eval
    extra = {name: {"metrics": one.metrics, "intervals": one.intervals} for name, one in others.items()}
    ledger = vars(found.ledger)
    return {"metrics": results.metrics, "intervals": results.intervals, "ledger": ledger, "extra_eval": extra}


def work_predict(run: str, inputs: list[Any]) -> dict[str, Any]:
    import bertworks

    return {"predictions": [asdict(one) for one in bertworks.Run(run).predict(inputs)]}


def work_encode(model: str, texts: list[str], out: str) -> dict[str, Any]:
    """With the older code too."""
    import numpy as np

    import bertworks

    np.save(out, bertworks.load(model).encode(texts))
    return {}


WORK = {
    "resume": work_resume,
    "train": work_train,
    "describe": work_describe,
    "evaluate": work_evaluate,
    "predict": work_predict,
    "encode": work_encode,
}


# ---------------------------------------------------------------------- the checks


def check_run(old: Path, folder: Path, training: Training, asked: list[Any]) -> Iterator[tuple[str, list[str]]]:
    """What is compared, and the differences."""
    made = make_run(old, folder, training)
    resumed, fresh = (folder / name / training.name for name in ("resumed", "fresh"))
    for path in (resumed, fresh):
        shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(exist_ok=True)
    shutil.copytree(made, resumed)
    middle = cut_back(resumed)
    verb = "pretrain" if training.task is None else "finetune"
    jobs: list[dict[str, Any]] = [
        {"job": "resume", "run": str(resumed)},
        {"job": "train", "verb": verb, "arguments": training.arguments(folder, fresh)},
        *({"job": "describe", "run": str(run)} for run in (made, resumed, fresh)),
    ]
    if training.task is not None:
        test = _table(folder, training.data, "test")
        jobs.append({"job": "evaluate", "run": str(made), "data": str(test)})
        jobs.append({"job": "predict", "run": str(made), "inputs": asked})
    went_on, began, before, *after = run_new(*jobs)
    for name, run, done, said in (
        ("resumed", resumed, went_on, after[0]),
        ("fresh", fresh, began, after[1]),
    ):
        if "error" in done:
            yield name, [done["error"]]
            continue
        if name == "resumed":
            yield "resumed from the middle", [] if done["from"] == [middle] else [f"{done['from']}, not [{middle}]"]
        yield f"{name}: tensors", different_tensors(made, run)
        yield f"{name}: metrics", _different(before, said, RENAMED)
    if training.task is not None:
        evaluated = json.loads(run_old(old, "evaluate", str(made), "--data", str(test), "--json"))
        yield "evaluate", _different(evaluated, after[2], RENAMED)
        lines = run_old(
            old, "predict", str(made), str(folder / "tables" / f"{training.data}.txt"), "--json"
        ).splitlines()
        rows = [json.loads(line).items() for line in lines]
        front = "predicted_"
        known = [{key.removeprefix(front): value for key, value in row if key.startswith(front)} for row in rows]
        assert len(known) == len(asked) and all(known)
        yield "predict", _different({"predictions": known}, after[3], RENAMED_PREDICTIONS)


def _different(old: dict[str, Any], new: dict[str, Any], renamed: dict[str, str]) -> list[str]:
    errors = [one["error"] for one in (old, new) if "error" in one]
    return errors or different_values(today(old, renamed), today(new, renamed))


def check_vectors(old: Path, folder: Path, model: str) -> list[str]:
    """Of short texts."""
    import numpy as np

    name, texts, vectors = Path(model).name, short_texts(), []
    for side, source in (("old", old / "src"), ("new", ROOT / "src")):
        out = folder / f"vectors-{name}-{side}.npy"
        out.unlink(missing_ok=True)
        (done,) = run_new({"job": "encode", "model": model, "texts": texts, "out": str(out)}, source=source)
        if "error" in done:
            return [f"{side}: {done['error']}"]
        vectors.append(np.load(out))
    before, now = vectors
    assert len(before) == len(texts)
    if (before.shape, before.dtype) != (now.shape, now.dtype):
        return [f"{before.shape} {before.dtype} then, {now.shape} {now.dtype} now"]
    rows = [at for at in range(len(texts)) if before[at].tobytes() != now[at].tobytes()]
    return [f"{len(rows)} of {len(texts)} vectors, the first of text {rows[0]}"] if rows else []


def check_all(old: Path, folder: Path) -> int:
    """The number of differences."""
    claim(old, folder)
    asked = write_data(folder)
    make_shards(old, folder)
    n_checks, n_different = 0, 0

    def show(title: str, size: str, checks: list[tuple[str, list[str]]]) -> None:
        nonlocal n_checks, n_different
        wrong = [(check, found) for check, found in checks if found]
        n_checks, n_different = n_checks + len(checks), n_different + len(wrong)
        print(f"{title:28} {size:>18}   {'DIFFERENT' if wrong else 'same'}", flush=True)
        for check, found in wrong:
            more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
            print(f"    {check}: {'; '.join(found[:3])}{more}", flush=True)

    for training in TRAININGS:
        checks = list(check_run(old, folder, training, asked.get(training.data, [])))
        show(
            f"{'finetune' if training.task else 'pretrain'} {training.name}",
            f"{STEPS} steps, {len(checks)} checks",
            checks,
        )
    for model in ("minilm", str(folder / "old" / "bert")):
        show(
            f"vectors of {Path(model).name}",
            f"{len(short_texts())} texts",
            [("encode", check_vectors(old, folder, model))],
        )
    same = "all the same" if not n_different else f"{n_different} DIFFERENT"
    print(f"{len(TRAININGS)} runs, {n_checks} checks: {same}")
    return n_different


def main() -> None:
    if sys.argv[1:] == ["--work"]:
        work()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="a checkout of an older version")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="work in this folder, and leave everything there")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT / "src"))  # the names of this tree, wherever a bertworks is installed
    old = arguments.old.resolve()
    probe = [sys.executable, "-c", "import bertworks; print(bertworks.__file__)"]
    found = subprocess.run(probe, env=environment(old / "src"), capture_output=True, text=True).stdout.strip()
    if not found or not Path(found).is_relative_to(old):
        sys.exit(f"{old}: no checkout of bertworks")
    if arguments.keep is not None:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        sys.exit(bool(check_all(old, arguments.keep.resolve())))
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(bool(check_all(old, Path(folder).resolve())))


if __name__ == "__main__":
    main()
