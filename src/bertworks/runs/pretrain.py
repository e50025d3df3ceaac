"""Pre-training: shards, a model, an objective and the trainer joined into a run.

RUN/run.json        what is trained, on what, where; written before the first step
    checkpoints/    where it can go on
    metrics.jsonl   what happened
    model/          the best so far, as a Hugging Face folder (rtd: with generator/)
    report.html     what came of it
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import shutil
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertworks import __version__
from bertworks.config import ModelConfig, PretrainConfig, check_pretrain
from bertworks.data.examples import Part
from bertworks.data.feed import Cut, Feed
from bertworks.data.loader import Batch, Loader
from bertworks.data.shards import MANIFEST, Shards
from bertworks.errors import BadCheckpoint, BadConfig, BadShards, BertworksError, NotFound, SaveFailed
from bertworks.files import locked, new_folder, read_json, write_json
from bertworks.model.encoder import Encoder
from bertworks.model.folder import GENERATOR
from bertworks.model.heads import LanguageHead, ReplacedHead
from bertworks.model.init import can_look_around, look_around
from bertworks.model.locate import MODEL, RUN
from bertworks.model.model import Model
from bertworks.model.pooling import Pooling
from bertworks.model.resize import refit
from bertworks.objectives.causal import Causal
from bertworks.objectives.masked import Masked
from bertworks.objectives.objective import Objective, gather_evidence
from bertworks.objectives.permuted import Permuted
from bertworks.objectives.replaced import Replaced, generator_config
from bertworks.runs.report import write_report
from bertworks.train.checkpoint import Checkpoint, newest_checkpoint, tidy_checkpoints
from bertworks.train.clock import Clock
from bertworks.train.log import METRICS, Log, Watch, read_events
from bertworks.train.machine import check_precision, choose_device, environment, keep_freed_memory, matrix_rate, set_threads
from bertworks.train.ranks import Ranks, together
from bertworks.train.signals import listening
from bertworks.train.trainer import Trainer
from bertworks.workbench import Workbench, load

CHECKPOINTS = "checkpoints"
FORMAT = 1
EVALUATION_TOKENS = 4096  # of a held-out batch, whatever the training's are
SIMPLE: dict[str, type[Objective]] = {"mlm": Masked, "plm": Permuted, "ltr": Causal}
SHOWN = 8  # held-out sequences in the report
BITS = ("bertworks", "torch", "numpy", "processor", "device", "threads", "world_size")  # what the promise of equal bits depends on


@dataclass(frozen=True)
class Outcome:
    """0, or the signal that asked to stop."""

    signal: int
    folder: Path

    @property
    def exit_code(self) -> int:
        return 128 + self.signal if self.signal else 0


def pretrain(
    config: PretrainConfig, shards: Shards, out: Path, *, init: str | None, preset: str | None, ranks: Ranks, watch: Watch, began: float
) -> Outcome:
    """A new run. After torchrun has started the processes again, the same run goes on."""
    record = {
        "format": FORMAT,
        "written_by": f"bertworks {__version__}",
        "preset": preset,
        "init": str(Path(init).resolve()) if init is not None and Path(init).exists() else init,
        "shards": str(shards.folder.resolve()),
        "data": fingerprint(shards),
        "config": config.model_dump(mode="json"),
    }
    return _run(record, shards, out, ranks, watch, began, new=True)


def resume(out: Path, *, shards: Path | None = None, workers: int | None = None, ranks: Ranks, watch: Watch, began: float) -> Outcome:
    """`shards`: where they are now, if they were moved. `workers`: other than before; nothing but the speed depends on it."""
    record = read_run(out)
    text = Shards(shards or record["shards"])
    if fingerprint(text) != record["data"]:
        cause = "these are not the shards that the run began with"
        raise BadShards(cause, place=str(text.folder), remedy="name their folder with --shards, or prepare the same text again")
    if workers is not None:
        record["config"]["train"]["workers"] = workers
    return _run(record, text, out, ranks, watch, began, new=False)


def read_run(out: Path) -> dict[str, Any]:
    if not (out / RUN).is_file():
        raise NotFound("no run in this folder", place=str(out), remedy="`bertworks pretrain SHARDS --out RUN` makes one")
    record = read_json(out / RUN)
    missing = {"format", "shards", "data", "config", "init", "preset"} - record.keys()
    if missing or record["format"] != FORMAT or not isinstance(record["shards"], str):
        raise BadConfig("not the record of a run that this version knows", place=str(out / RUN))
    return record


def fingerprint(shards: Shards) -> dict[str, Any]:
    """By which the text of a run is known."""
    digest = hashlib.sha256((shards.folder / MANIFEST).read_bytes()).hexdigest()
    counts = shards.manifest.counts
    return {"manifest": digest, "tokenizer": shards.manifest.tokenizer, "documents": counts.documents, "tokens": counts.tokens}


def _run(record: dict[str, Any], shards: Shards, out: Path, ranks: Ranks, watch: Watch, began: float, *, new: bool) -> Outcome:
    config = check_pretrain(record["config"], str(out / RUN))
    device = choose_device(config.train, ranks.local_rank)
    check_precision(config.train, device)
    with together(ranks, device), listening() as stop, _owned(out, ranks):
        if new and ranks.first:
            _check_new(out, record, restarted=ranks.restarts > 0)
        checkpoint, passed_over = _newest(out, identity(record), ranks, device)
        if not new and checkpoint is None and any(event["step"] for event in read_events(out / METRICS)):
            raise BadCheckpoint(
                "this run has no checkpoint any more", place=str(out), remedy="begin a new one; RUN/model can be its --init"
            )
        set_threads(checkpoint.machine["threads"] if checkpoint else config.train.threads, ranks.local_world)
        machine = {**environment(device, ranks.world), "keeps_freed_memory": keep_freed_memory()}
        frequencies = log_frequencies(shards, config.model.encoder.vocab_size)
        start = _origin(record, out, resumed=checkpoint is not None)
        objective = make_objective(config, start if checkpoint is None else None, frequencies).to(device)
        if ranks.first and checkpoint is None:
            write_json(out / RUN, {**record, "environment": machine})
            if not (out / CHECKPOINTS).is_dir():
                with new_folder(out / CHECKPOINTS):
                    pass
        log = Log(out, watch, since=checkpoint.state.step if checkpoint else -1) if ranks.first else None
        evaluation = Evaluation(objective, shards, config, ranks, frequencies)
        lineage = [*(start.lineage if start else [f"new {record['preset']}"]), f"pretrain {config.objective.name}"]
        trainer = Trainer(
            objective,
            Feed(_loader(objective, shards, config, "train", config.train.batch_tokens), _cut(config, ranks), config.train.workers),
            config.optim,
            config.train if evaluation.batches else config.train.model_copy(update={"evaluations": 0}),
            folder=out,
            log=log,
            ranks=ranks,
            clock=Clock(config.train.budget, began=began),
            stop=stop,
            evaluate=evaluation,
            save_model=lambda: save_model(objective, start, lineage, shards, out) if ranks.first else None,
            identity=identity(record),
            machine=machine,
            matrix_rate=_rate(config, device),
        )
        if checkpoint is not None:
            trainer.resume(checkpoint, str(out / CHECKPOINTS))
            trainer.say({"kind": "resumed", "differences": _differences(checkpoint, machine)})
            del checkpoint  # its tensors
            if not (out / MODEL).is_dir():
                trainer.save_model()
        for reason in passed_over:
            trainer.say({"kind": "remark", "text": f"passed over a damaged checkpoint: {reason}"})
        trainer.say({"kind": "start", **machine, "matrix_gflops": trainer.matrix_rate / 1e9, "unigram_loss": evaluation.unigram})
        signal = trainer.run()
        if log is not None:
            if not signal:
                report = write_report(out, objective.eval(), evaluation.some(), shards.tokenizer)
                trainer.say({"kind": "end", "model": str(out / MODEL), "report": str(report)})
            log.close()
        return Outcome(signal, out)


def _check_new(out: Path, record: dict[str, Any], *, restarted: bool) -> None:
    """Nothing of others is in the folder. What a process of this very run wrote before torchrun started it again may be."""
    if (out / RUN).is_file():
        there = {name: value for name, value in read_json(out / RUN).items() if name != "environment"}
        if restarted and there == record:
            return
        raise SaveFailed("there is a run here already", place=str(out), remedy=f"`bertworks resume {out}` goes on with it; or name another")
    if any(path.name != ".lock" for path in out.iterdir()):
        raise SaveFailed("this folder is not empty", place=str(out), remedy="name a new one")


def identity(record: dict[str, Any]) -> str:
    """By which a run knows its own checkpoints: what it learns, from what, and how."""
    config = {**record["config"], "train": {name: value for name, value in record["config"]["train"].items() if name != "workers"}}
    return hashlib.sha256(json.dumps([config, record["data"], record["preset"]], sort_keys=True).encode()).hexdigest()


def _newest(out: Path, run: str, ranks: Ranks, device: torch.device) -> tuple[Checkpoint | None, list[str]]:
    """The checkpoint to go on from, the same for every process, and what was wrong with newer ones."""
    checkpoint, broken = newest_checkpoint(out / CHECKPOINTS, run)
    if checkpoint is None and broken:
        raise BadCheckpoint("no checkpoint of this run is whole:\n  " + "\n  ".join(broken.values()), place=str(out))
    step = checkpoint.state.step if checkpoint else -1
    if int(ranks.sum(torch.tensor(step, device=device))) != step * ranks.world:
        raise BadCheckpoint("the processes see different checkpoints", place=str(out), remedy="they need the same folder, on a shared disk")
    if ranks.first and (out / CHECKPOINTS).is_dir():
        tidy_checkpoints(out / CHECKPOINTS, broken)
    return checkpoint, list(broken.values())


def _origin(record: dict[str, Any], out: Path, *, resumed: bool) -> Workbench | None:
    """The model that a run began with, for its weights; later its own, for what stands beside the weights in a folder."""
    if resumed and (out / MODEL).exists():
        try:
            return load(out / MODEL)
        except BertworksError:  # the checkpoint has all the weights; a new one will be written
            shutil.rmtree(out / f"damaged-{MODEL}", ignore_errors=True)
            with suppress(OSError):  # another process may have been faster
                (out / MODEL).rename(out / f"damaged-{MODEL}")
    return load(record["init"]) if record["init"] is not None else None


def _owned(out: Path, ranks: Ranks) -> AbstractContextManager[None]:
    """One process writes to the folder; the others of the same training follow it."""
    return locked(out) if ranks.first else nullcontext()


def _differences(checkpoint: Checkpoint, machine: dict[str, Any]) -> list[str]:
    """What is other than when the checkpoint was written, so that equal bits are not promised."""
    before = checkpoint.machine
    return [f"{name}: {before.get(name)} then, {machine[name]} now" for name in BITS if before.get(name) != machine[name]]


def _cut(config: PretrainConfig, ranks: Ranks) -> Cut:
    return Cut.of(ranks.rank, ranks.world, config.train.batch_tokens, config.train.micro_tokens)


def _rate(config: PretrainConfig, device: torch.device) -> float:
    """The machine's limit: products as large as those of the feed-forward layers."""
    encoder, dtype = config.model.encoder, torch.bfloat16 if config.train.precision == "bfloat16" else torch.get_default_dtype()
    return matrix_rate(min(config.train.batch_tokens, 4096), encoder.hidden_size, encoder.ffn_size, device, dtype)


def _loader(objective: Objective, shards: Shards, config: PretrainConfig, part: Part, batch_tokens: int) -> Loader:
    return Loader(shards, config.data, hide=objective.hide, batch_tokens=batch_tokens, seed=config.train.seed, part=part)


def make_objective(config: PretrainConfig, start: Workbench | None, frequencies: NDArray[np.float64]) -> Objective:
    """The objective with its model: new, or grown from a trained one."""
    seed = config.train.seed
    model = _model(config, config.model, _heads(config), start, seed, frequencies)
    if config.objective.name == "rtd":
        small = generator_config(config.model, config.objective.generator_size)
        generator = _model(config, small, ["lm"], start.generator if start else None, seed + 1, frequencies)
        objective: Objective = Replaced(model, generator, config.objective.replaced_weight)
    else:
        objective = SIMPLE[config.objective.name](model)
    if start is None and config.train.start == "local":
        for new in objective.models().values():
            if can_look_around(new.config.encoder):
                look_around(new.encoder)
    for module in objective.modules():
        if isinstance(module, nn.Dropout) and config.train.dropout is not None:
            module.p = config.train.dropout
        if isinstance(module, Encoder):
            module.recompute = config.train.recompute
    return objective.train()


@torch.no_grad()
def _model(
    config: PretrainConfig, shape: ModelConfig, heads: list[str], start: Workbench | None, seed: int, frequencies: NDArray[np.float64]
) -> Model:
    """New heads begin with what counting knows: how frequent each token is, and how many are replaced. Learning it takes hundreds of
    steps, and those push the states of all tokens the same way, until a discriminator cannot tell them apart."""
    model = Model.fresh(shape, heads, seed=seed) if start is None else refit(start.model, shape, heads, seed)
    for name, head in model.heads.items():
        if start is not None and name in start.model.heads:
            continue
        if isinstance(head, LanguageHead) and head.bias is not None:
            head.bias.copy_(torch.from_numpy(frequencies))
        if isinstance(head, ReplacedHead):
            head.out.bias.copy_(torch.logit(torch.tensor(config.data.mask_rate), eps=1e-3))
    return model


def _heads(config: PretrainConfig) -> list[str]:
    if config.objective.name == "rtd":
        return ["replaced"]
    return ["lm", "pair"] if config.data.pairs in ("nsp", "sop") else ["lm"]


def save_model(objective: Objective, start: Workbench | None, lineage: list[str], shards: Shards, out: Path) -> None:
    """As it is now, for everyone: our verbs and transformers."""
    pooling, hf_config = (start.pooling, start.hf_config) if start else (Pooling(), {})
    if start is not None and start.config.encoder.n_positions != objective.model.config.encoder.n_positions:
        pooling = dataclasses.replace(pooling, limit=None)  # the old one was for the old positions
    benches = {name: Workbench(model, shards.tokenizer, pooling, hf_config, lineage, []) for name, model in objective.models().items()}
    best = benches.pop("")
    best.generator = benches.get(GENERATOR)
    best.save(out / MODEL)


class Evaluation:
    """Held-out text, the same for every model of these shards: a few batches of all lengths, divided among the processes."""

    def __init__(
        self, objective: Objective, shards: Shards, config: PretrainConfig, ranks: Ranks, frequencies: NDArray[np.float64]
    ) -> None:
        self.objective, self.ranks = objective, ranks
        size = max(EVALUATION_TOKENS, config.data.max_length)
        epoch = _loader(objective, shards, config, "held_out", size).epoch(0)
        wanted = min(len(epoch), -(-config.train.evaluate_tokens // size))
        numbers: list[int] = np.unique(np.linspace(0, len(epoch) - 1, wanted).round().astype(int)).tolist() if wanted else []
        self.epoch, self.batches = epoch, [epoch[number] for number in numbers]
        answers = np.concatenate([np.empty(0, np.int64), *(objective.answers(batch)[1] for batch in self.batches)])
        if not len(answers):
            self.batches = []  # too little text to look at
        # What guesses cost that know how frequent each token is, and nothing of the context; in nats.
        self.unigram = float(-frequencies[answers].mean()) if self.batches else math.nan

    def some(self) -> Batch | None:
        """A few sequences to look at."""
        return self.epoch.gather(self.batches[len(self.batches) // 2].examples[:SHOWN]) if self.batches else None

    def __call__(self) -> dict[str, float]:
        # Where there are fewer batches than processes everyone takes all: sums and counts grow alike.
        mine = self.batches[self.ranks.rank :: self.ranks.world] if len(self.batches) >= self.ranks.world else self.batches
        sums = gather_evidence(self.objective, mine)
        measures = self.objective.judge({name: self.ranks.sum(value) for name, value in sums.items()})
        return {"loss": measures[self.objective.loss], **measures}


def log_frequencies(shards: Shards, vocab_size: int) -> NDArray[np.float64]:
    """The logarithm of each token's share of the text; what does not occur counts once, for nothing is impossible."""
    counts = np.ones(vocab_size)
    for number in range(len(shards)):
        counts += np.bincount(shards[number].tokens, minlength=vocab_size)
    logs: NDArray[np.float64] = np.log(counts / counts.sum())
    return logs
