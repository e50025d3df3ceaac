"""Pre-training: shards, a model, an objective and the trainer joined into a run."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertworks.config import ModelConfig, PretrainConfig, check_pretrain
from bertworks.data.examples import Part
from bertworks.data.feed import Feed, Share
from bertworks.data.loader import Batch, Loader
from bertworks.data.shards import MANIFEST, Shards
from bertworks.errors import BadShards
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
from bertworks.runs.folder import Outcome, Record, identity, named, new_record, opened, read_run
from bertworks.runs.report import write_report
from bertworks.train.clock import Clock
from bertworks.train.log import Watch
from bertworks.train.looks import Looks
from bertworks.train.machine import matrix_rate
from bertworks.train.ranks import Ranks
from bertworks.train.trainer import Trainer
from bertworks.workbench import Workbench

KIND = "pretrain"
EVALUATION_TOKENS = 4096  # of a held-out batch, whatever the training's are
SIMPLE: dict[str, type[Objective]] = {"mlm": Masked, "plm": Permuted, "ltr": Causal}
SHOWN = 8  # held-out sequences in the report


def pretrain(
    config: PretrainConfig, shards: Shards, out: Path, *, init: str | None, preset: str | None, ranks: Ranks, watch: Watch, began: float
) -> Outcome:
    """A new run. After torchrun has started the processes again, the same run goes on."""
    about = {"preset": preset, "init": named(init), "shards": str(shards.folder.resolve()), "data": fingerprint(shards)}
    record = new_record(KIND, config, **about)
    return _run(record, shards, out, ranks, watch, began, new=True)


def resume(out: Path, *, shards: Path | None = None, workers: int | None = None, ranks: Ranks, watch: Watch, began: float) -> Outcome:
    """`shards`: where they are now, if they were moved. `workers`: other than before; nothing but the speed depends on it."""
    record = read_run(out, KIND)
    text = Shards(shards or record["shards"])
    if fingerprint(text) != record["data"]:
        cause = "these are not the shards that the run began with"
        remedy = "name their folder with --shards, or prepare the same text again"
        raise BadShards(cause, place=str(text.folder), remedy=remedy, code="shards-changed")
    if workers is not None:
        record["config"]["train"]["workers"] = workers
    return _run(record, text, out, ranks, watch, began, new=False)


def fingerprint(shards: Shards) -> dict[str, Any]:
    """By which the text of a run is known."""
    digest = hashlib.sha256((shards.folder / MANIFEST).read_bytes()).hexdigest()
    counts = shards.manifest.counts
    return {"manifest": digest, "tokenizer": shards.manifest.tokenizer, "documents": counts.documents, "tokens": counts.tokens}


def _run(record: Record, shards: Shards, out: Path, ranks: Ranks, watch: Watch, began: float, *, new: bool) -> Outcome:
    config = check_pretrain(record["config"], str(out / RUN))
    with opened(record, config.train, out, ranks, watch, new=new) as run:
        frequencies = log_frequencies(shards, config.model.encoder.vocab_size)
        start = run.origin()
        objective = make_objective(config, start if run.checkpoint is None else None, frequencies).to(run.device)
        log = run.begin()
        evaluation = Evaluation(objective, shards, config, ranks, frequencies)
        lineage = run.lineage(start, f"pretrain {config.objective.name}")
        trainer = Trainer(
            objective,
            Feed(
                _loader(objective, shards, config, "train", config.train.batch_tokens),
                Share(ranks.rank, ranks.world, config.train.micro_tokens),
                config.train.workers,
            ),
            config.optim,
            config.train if evaluation.batches else config.train.model_copy(update={"evaluations": 0}),
            folder=out,
            log=log,
            ranks=ranks,
            clock=Clock(config.train.budget, began=began),
            stop=run.stop,
            evaluate=evaluation,
            save_model=lambda: save_model(objective, start, lineage, shards, out) if ranks.first else None,
            identity=identity(record),
            machine=run.machine,
            matrix_rate=_rate(config, run.device),
            looks=Looks(),
        )
        run.go_on(trainer)
        trainer.say({"kind": "start", **run.machine, "matrix_gflops": trainer.matrix_rate / 1e9, "unigram_loss": evaluation.unigram})
        signal = trainer.run()
        if log is not None:
            if not signal:
                report = write_report(out, objective.eval(), evaluation.some(), shards.tokenizer)
                trainer.say({"kind": "end", "model": str(out / MODEL), "report": str(report)})
            log.close()
        return Outcome(signal, out)


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
