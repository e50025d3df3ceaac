"""Pre-training: shards, a model, an objective and the trainer joined into a run."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertworks.config import ModelConfig, PretrainConfig, check_pretrain
from bertworks.data.batches import BatchStream, RankShard
from bertworks.data.examples import Split
from bertworks.data.loader import Loader
from bertworks.data.shards import MANIFEST, Shards
from bertworks.errors import BadShards
from bertworks.model.folder import GENERATOR
from bertworks.model.heads import LanguageHead, ReplacedHead
from bertworks.model.init import can_init_local_attention, init_local_attention
from bertworks.model.locate import MODEL, RUN
from bertworks.model.model import Model
from bertworks.model.pooling import Pooling
from bertworks.model.resize import refit
from bertworks.objectives.objective import Objective, sum_over_batches
from bertworks.objectives.table import objective_class
from bertworks.presets import RECIPES
from bertworks.reports.pretrain import HeldOutSample, write_pretrain_report
from bertworks.runs.context import Outcome, ProcessContext, open_run, resolve_name
from bertworks.runs.record import PRETRAIN, RunRecord
from bertworks.runs.settings import Settings, resolve_pretrain
from bertworks.train.distributed import Distributed
from bertworks.train.events import METRICS, Finished, Started, lowest_loss, read_events
from bertworks.train.policy import EvaluationPolicy
from bertworks.train.trainer import Trainer
from bertworks.workbench import Workbench, load

EVALUATION_BATCH_TOKENS = 4096  # whatever the training's batches are
REPORT_SEQUENCES = 8  # held-out ones that the report shows


@dataclass(frozen=True)
class PretrainJob:
    """A pre-training that is checked and not started: its config is complete."""

    config: PretrainConfig
    shards: Shards
    init: str | None = None  # name of the model to start from,
    preset: str | None = None  # or the size of a new one
    start: Workbench | None = None  # that model, if it is loaded already

    @classmethod
    def resolve(
        cls,
        shards: Shards,
        *,
        preset: str | None = None,
        model: str | None = None,
        objective: str | None = None,
        settings: Settings,
    ) -> PretrainJob:
        start = load(model) if model is not None else None
        if start is not None:
            shards.check_tokenizer(start.tokenizer, str(model))
        config = resolve_pretrain(shards.tokenizer, preset=preset, init=start, objective=objective, settings=settings)
        return cls(config, shards, model, preset, start)


def pretrain(job: PretrainJob, out: Path, process: ProcessContext) -> Outcome:
    """Start a new run; if torchrun has restarted the processes, resume it."""
    record = RunRecord.new(
        PRETRAIN,
        job.config,
        preset=job.preset,
        init=resolve_name(job.init),
        shards=str(job.shards.folder.resolve()),
        data=fingerprint(job.shards),
    )
    return _run(record, job.shards, out, process, new=True, start=job.start)


def resume(out: Path, process: ProcessContext, *, shards: Path | None = None, workers: int | None = None) -> Outcome:
    """`shards`: their folder now, if they were moved. `workers`: another number than before; only the speed depends on
    it."""
    record = RunRecord.read(out, PRETRAIN)
    opened = Shards(shards or str(record.shards))
    if fingerprint(opened) != record.data:
        cause = "these are not the shards that the run started with"
        remedy = "name their folder with --shards, or prepare the same text again"
        raise BadShards(cause, place=str(opened.folder), remedy=remedy, code="shards-changed")
    record = record if workers is None else record.with_loop(workers=workers)
    return _run(record, opened, out, process, new=False)


def _full_objective(config: PretrainConfig) -> str:
    """As `--objective` names it: with the sentence pairs that are classified."""
    name, pairs = config.objective.name, config.data.pairs
    return f"{name}+{pairs}" if f"{name}+{pairs}" in RECIPES else name


def fingerprint(shards: Shards) -> dict[str, object]:
    """Identifies the text of a run."""
    digest = hashlib.sha256((shards.folder / MANIFEST).read_bytes()).hexdigest()
    counts = {"documents": shards.manifest.counts.documents, "tokens": shards.manifest.counts.tokens}
    return {"manifest": digest, "tokenizer": shards.manifest.tokenizer, **counts}


def _run(
    record: RunRecord, shards: Shards, out: Path, process: ProcessContext, *, new: bool, start: Workbench | None = None
) -> Outcome:
    config = check_pretrain(record.config, str(out / RUN))
    with open_run(record, config.train, out, process, new=new, start=start) as run:
        log_freqs = log_frequencies(shards, config.model.encoder.vocab_size)
        start = run.initial_model()
        objective = make_objective(config, start if run.checkpoint is None else None, log_freqs).to(run.device)
        evaluation = HeldOutEvaluation(objective, shards, config, process.distributed, log_freqs)
        lineage = run.lineage(start, f"pretrain {_full_objective(config)}")
        rank_shard = RankShard(process.distributed.rank, process.distributed.world_size, config.train.micro_tokens)
        loader = _loader(objective, shards, config, "train", config.train.batch_tokens)
        context = run.begin(config, config.train.batch_tokens)  # nothing is refused after this
        policy = EvaluationPolicy(
            evaluate=lambda step: evaluation(),
            save_model=lambda: save_model(objective, start, lineage, shards, out) if run.is_main else None,
        )
        trainer = Trainer(
            objective,
            BatchStream(loader, rank_shard, config.train.workers),
            config.optim,
            config.train if evaluation.batches else config.train.model_copy(update={"evaluations": 0}),
            context,
            policy,
        )
        run.restore(trainer)
        started = Started(
            machine=run.machine,
            peak_gflops=context.peak_flops.value / 1e9,
            terms=dict(objective.terms),
            unigram_loss=evaluation.unigram_loss,
        )
        if not trainer.has_ended:
            trainer.emit(started)
        signal = trainer.run()
        if run.is_main and not signal:
            report = write_pretrain_report(out, objective.eval(), evaluation.sample(), shards.tokenizer)
            trainer.emit(Finished(model=str(out / MODEL), report=str(report), metrics=best_metrics(out)))
        return Outcome(out, signal, process.runtime.stop.signal)


def best_metrics(run: Path) -> dict[str, float]:
    """On held-out text, of the model that is kept."""
    best = lowest_loss(read_events(run / METRICS))
    return dict(best.metrics) if best is not None else {}


def _loader(objective: Objective, shards: Shards, config: PretrainConfig, split: Split, batch_tokens: int) -> Loader:
    seed = config.train.seed
    corruption = objective.corruption
    return Loader(shards, config.data, corruption=corruption, batch_tokens=batch_tokens, seed=seed, split=split)


def make_objective(config: PretrainConfig, start: Workbench | None, log_freqs: NDArray[np.float64]) -> Objective:
    """The objective with its model: new, or starting from a trained one."""
    objective_type = objective_class(config.objective.name)
    objective_type.check(config)
    starts = {"": start, GENERATOR: start.generator if start else None}

    def build(model_config: ModelConfig, heads: list[str], part: str) -> Model:
        seed = config.train.seed + list(starts).index(part)
        return _build_model(config, model_config, heads, starts[part], seed, log_freqs)

    model = build(config.model, objective_type.heads(config.data), "")
    objective = objective_type.assemble(model, config, build)
    if start is None and config.train.init == "local":
        for new in objective.models().values():
            if can_init_local_attention(new.config.encoder):
                init_local_attention(new.encoder)
    for module in objective.modules():
        if isinstance(module, nn.Dropout) and config.train.dropout is not None:
            module.p = config.train.dropout
    if config.train.recompute:
        for model in objective.models().values():
            model.encoder.use_recompute()
    return objective.train()


@torch.no_grad()
def _build_model(
    config: PretrainConfig,
    model_config: ModelConfig,
    heads: list[str],
    start: Workbench | None,
    seed: int,
    log_freqs: NDArray[np.float64],
) -> Model:
    """The biases of new heads start at what counting gives: how frequent each token is, and how many are replaced.
    Learning that takes hundreds of steps, and those push the states of all tokens the same way, until a discriminator
    cannot tell them apart."""
    if start is None:
        model = Model.fresh(model_config, heads, seed=seed)
    else:
        model = refit(start.model, model_config, heads, seed)
    for name, head in model.heads.items():
        if start is not None and name in start.model.heads:
            continue
        if isinstance(head, LanguageHead) and head.bias is not None:
            head.bias.copy_(torch.from_numpy(log_freqs))
        if isinstance(head, ReplacedHead):
            head.out.bias.copy_(torch.logit(torch.tensor(config.data.mask_rate), eps=1e-3))
    return model


def save_model(objective: Objective, start: Workbench | None, lineage: list[str], shards: Shards, out: Path) -> None:
    """As a model folder, for our commands and for transformers."""
    pooling, hf_config = (start.pooling, start.hf_config) if start else (Pooling(), {})
    if start is not None and start.config.encoder.n_positions != objective.model.config.encoder.n_positions:
        pooling = replace(pooling, limit=None)  # the old one was for the old positions
    benches = {
        name: Workbench(model, shards.tokenizer, pooling, hf_config, lineage, [])
        for name, model in objective.models().items()
    }
    bench = benches.pop("")
    bench.generator = benches.get(GENERATOR)
    bench.save(out / MODEL)


class HeldOutEvaluation:
    """The metrics on held-out text, the same text for every model of these shards: a few batches of all lengths,
    divided among the processes."""

    def __init__(
        self,
        objective: Objective,
        shards: Shards,
        config: PretrainConfig,
        distributed: Distributed,
        log_freqs: NDArray[np.float64],
    ) -> None:
        self.objective = objective
        self.distributed = distributed
        batch_tokens = max(EVALUATION_BATCH_TOKENS, config.data.max_length)
        self.epoch = _loader(objective, shards, config, "held_out", batch_tokens).epoch(0)
        n_batches = min(len(self.epoch), -(-config.train.evaluate_tokens // batch_tokens))
        indices = np.unique(np.linspace(0, len(self.epoch) - 1, n_batches).round().astype(int)) if n_batches else ()
        self.batches = [self.epoch[int(index)] for index in indices]
        targets = np.concatenate([np.empty(0, np.int64), *(objective.targets(batch)[1] for batch in self.batches)])
        if not len(targets):
            self.batches = []  # too little text to evaluate on
        # The loss of predictions by token frequency alone, without context; in nats.
        self.unigram_loss = float(-log_freqs[targets].mean()) if self.batches else math.nan

    def sample(self) -> HeldOutSample | None:
        """A few sequences for the report."""
        if not self.batches:
            return None
        batch = self.epoch.gather(self.batches[len(self.batches) // 2].examples[:REPORT_SEQUENCES])
        word_starts = [self.epoch.example(int(id)).word_starts for id in batch.examples]
        return HeldOutSample(batch, np.concatenate(word_starts), self.epoch.loader.config.pairs)

    def __call__(self) -> dict[str, float]:
        rank, world_size = self.distributed.rank, self.distributed.world_size
        # With fewer batches than processes, each process takes all: sums and counts grow by the same factor.
        own_batches = self.batches[rank::world_size] if len(self.batches) >= world_size else self.batches
        sums = sum_over_batches(self.objective, own_batches)
        metrics = self.objective.summarise({name: self.distributed.sum(value) for name, value in sums.items()})
        return {"loss": metrics[self.objective.main_term], **metrics}


def log_frequencies(shards: Shards, vocab_size: int) -> NDArray[np.float64]:
    """The logarithm of each token's frequency in the text, with add-one smoothing."""
    counts = np.ones(vocab_size)
    for index in range(len(shards)):
        counts += np.bincount(shards[index].tokens, minlength=vocab_size)
    logs: NDArray[np.float64] = np.log(counts / counts.sum())
    return logs
