"""What a time budget buys in fine-tuning: how long texts, how large steps, how many epochs.

A step on whole long texts may take a minute; two minutes would then end after three steps, with a model that learned
nothing. So a step is bounded in tokens and, if a budget is too short for one epoch of whole texts, training reads one
window of each text, another in each epoch, and shorter windows if need be. Evaluation and prediction read whole texts.
Evaluations on the way read so much of dev that the first and the last take their share of the budget, not all of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
import torch

from bertworks.config import FinetuneConfig, FinetuneLoop
from bertworks.data.rng import Stream, rng
from bertworks.datasets.example import Example
from bertworks.errors import Remark
from bertworks.model.resize import use_partial_embedding
from bertworks.tasks.features import Features, collate, token_ids
from bertworks.tasks.inference import AnyTask
from bertworks.tasks.windows import SlidingWindows
from bertworks.text.ledger import Ledger
from bertworks.text.tokenizer import Tokenizer
from bertworks.train.policy import EVALUATION_SHARE, EVALUATION_SPEED
from bertworks.train.runtime import Runtime, check_precision, choose_device, preserved_rng
from bertworks.train.trainer import END_SECONDS, PROFILED_STEPS

STEP_TOKENS = 8192  # of a step, on average
MIN_BATCH_SIZE = 8
MIN_STEPS = 50
MIN_EPOCHS = 1.0
WINDOW_LENGTHS = (256, 128, 64)  # that a short budget may choose
SAMPLED_EXAMPLES = 256  # whose lengths are measured
MIN_EVALUATE_TOKENS = 1024  # of dev: fewer would not tell models apart
PACE_TOKENS = 1024  # of the batch that the pace is measured with
SHORTENING_KEYS = {"data.max_length", "data.overlap", "data.on_long", "data.train_windows"}


@dataclass(frozen=True)
class Pace:
    """The time that a training takes, and the time it has."""

    seconds_per_token: float
    seconds: float

    @property
    def tokens(self) -> float:
        """That can be trained on, beside evaluations."""
        return (1 - EVALUATION_SHARE) * self.seconds / self.seconds_per_token

    @property
    def evaluate_tokens(self) -> int:
        """Of dev: two evaluations, which every run has, at its start and at its end, take their share of the time."""
        tokens = EVALUATION_SHARE * self.seconds / 2 * EVALUATION_SPEED / self.seconds_per_token
        return max(MIN_EVALUATE_TOKENS, int(tokens))


@dataclass(frozen=True)
class Plan:
    batch_size: int
    max_length: int
    mean_length: float  # tokens of an example that training reads
    evaluate_tokens: int  # of dev, on the way
    one_window: bool = False  # of each text

    @property
    def step_tokens(self) -> float:
        return self.batch_size * self.mean_length

    def n_steps(self, pace: Pace) -> float:
        """Beside those that the trainer measures its pace with."""
        return max(0.0, pace.tokens / self.step_tokens - PROFILED_STEPS)

    def apply(self, config: FinetuneConfig) -> FinetuneConfig:
        loop = {"batch_size": self.batch_size, "evaluate_tokens": self.evaluate_tokens}
        train = config.train.model_copy(update=loop)
        windows = {}
        if self.one_window:  # with little overlap: half of a short window would double the time of evaluations
            overlap = min(config.data.overlap, self.max_length // 8)
            windows = {"max_length": self.max_length, "overlap": overlap, "train_windows": 1}
        return config.model_copy(update={"train": train, "data": config.data.model_copy(update=windows)})

    def remarks(self, pace: Pace, config: FinetuneConfig, n_examples: int) -> list[Remark]:
        """What the budget buys, where it is not enough for the config as it was."""
        if self.n_steps(pace) < 1:
            return [self._too_short(pace)]
        if not self.one_window and self.batch_size == config.train.batch_size:
            return []
        n_steps = self.n_steps(pace)
        n_epochs = n_steps * self.batch_size / n_examples
        text = f"the budget buys about {n_steps:,.0f} steps of {self.batch_size} examples, {n_epochs:.1f} epochs"
        chinese = f"时间预算约可训练 {n_steps:,.0f} 步，每步 {self.batch_size} 个样本，共 {n_epochs:.1f} 轮"
        if self.one_window:
            text += (
                f": training reads one window of at most {self.max_length} tokens of each text, another in each epoch; "
                "evaluation and prediction read whole texts"
            )
            chinese += (
                f"：训练时每轮只读每篇文本的一个窗口（不超过 {self.max_length} 词元，每轮不同）；评估与预测读取全文"
            )
        return [Remark("budget-plan", text, chinese)]

    def _too_short(self, pace: Pace) -> Remark:
        tokens = (MIN_STEPS + PROFILED_STEPS) * self.step_tokens
        seconds = tokens * pace.seconds_per_token / (1 - EVALUATION_SHARE) + END_SECONDS
        needed = f"{math.ceil(seconds / 60)}m"
        steps = f"{MIN_STEPS} steps of {self.batch_size} examples"
        text = f"the budget is too short: one step is trained, which teaches little; {steps} need about {needed}"
        chinese = f"时间预算太短：只训练一步，学不到什么；{MIN_STEPS} 步（每步 {self.batch_size} 个样本）约需 {needed}"
        return Remark("budget-too-short", f"{text}: --budget {needed}", f"{chinese}：--budget {needed}")


def planned(
    config: FinetuneConfig,
    task: AnyTask,
    tokenizer: Tokenizer,
    train: Sequence[Example],
    *,
    user_keys: Set[str],
    n_runs: int = 1,
    began: float | None = None,
    may_measure: bool = True,
) -> tuple[FinetuneConfig, list[Remark]]:
    """A config whose steps are bounded in tokens and fit its budget, which is for `n_runs` seeds together and counts
    from `began`, if it has begun. What the user set stays. Where several processes train, none may measure: they would
    not agree."""
    before = time.monotonic()
    features = _sample_features(task, tokenizer, config, train)
    encoding_seconds = (time.monotonic() - before) / len(features) * len(train)  # of all of them, by each run
    remarks = _unknown_tokens(features)
    lengths = [item.length for item in features]
    loop = config.train
    plan = Plan(loop.batch_size, config.data.max_length, float(np.mean(lengths)), loop.evaluate_tokens)
    pace = None
    if loop.budget is not None and may_measure:
        seconds_per_token = measure_pace(task, features, loop)
        seconds_spent = time.monotonic() - began if began is not None else 0.0
        seconds = (loop.budget - seconds_spent) / n_runs - encoding_seconds - END_SECONDS
        pace = Pace(seconds_per_token, max(0.0, seconds))
        if "train.evaluate_tokens" not in user_keys:
            plan = replace(plan, evaluate_tokens=min(plan.evaluate_tokens, pace.evaluate_tokens))
        if task.samples_windows and not user_keys & SHORTENING_KEYS:
            plan = shorten_windows(plan, pace, lengths, len(train))
    if "train.batch_size" not in user_keys:
        plan = replace(plan, batch_size=bound_step(plan.batch_size, plan.mean_length))
        plan = shrink_steps(plan, pace) if pace is not None else plan
    if pace is not None:
        remarks += plan.remarks(pace, config, len(train))
    return plan.apply(config), remarks


def _unknown_tokens(features: Sequence[Features]) -> list[Remark]:
    ledger = Ledger()
    for item in features:
        item.add_to_ledger(ledger)
    if (advice := ledger.unknown_advice) is None:
        return []
    english, chinese = advice
    return [
        Remark("unknown-tokens", f"of {ledger.texts:,} examples: {english}", f"{ledger.texts:,} 个样本中：{chinese}")
    ]


def _sample_features(
    task: AnyTask, tokenizer: Tokenizer, config: FinetuneConfig, examples: Sequence[Example]
) -> list[Features]:
    """Of a random part of the examples; the same every time."""
    members = rng(0, Stream.EXAMPLES).permutation(len(examples))[:SAMPLED_EXAMPLES].tolist()
    return task.features([examples[member] for member in members], SlidingWindows.from_config(tokenizer, config.data))


def measure_pace(task: AnyTask, features: Sequence[Features], loop: FinetuneLoop) -> float:
    """Seconds per token of a training step, measured on a small batch; `task` is changed as for a training."""
    device = choose_device(loop.device)
    check_precision(loop, device)
    use_partial_embedding(task.model, torch.from_numpy(token_ids(features)))
    task.to(device)
    shortened = [_first_windows(item) for item in features]
    lengths = np.cumsum([item.length for item in shortened])
    n_items = max(1, int(np.searchsorted(lengths, PACE_TOKENS, side="right")))
    batch = collate(shortened, np.arange(n_items))
    seconds = []
    before = torch.get_num_threads()
    torch.set_num_threads(loop.threads or before)
    with preserved_rng(Runtime(), device):
        for _ in range(2):  # the first one warms up
            began = time.monotonic()
            with torch.autocast(device.type, torch.bfloat16, enabled=loop.precision == "bfloat16"):
                terms = task(batch)
            loss = torch.stack([term.total for term in terms if term.weight]).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            float(loss.detach())  # waits for a GPU
            seconds.append(time.monotonic() - began)
    torch.set_num_threads(before)
    return min(seconds) / int(lengths[n_items - 1])


def _first_windows(item: Features) -> Features:
    """One window of each choice, so that a long text takes no longer than others."""
    first = {window.choice: window for window in reversed(item.windows)}
    return replace(item, windows=tuple(first[choice] for choice in sorted(first)))


def bound_step(batch_size: int, mean_length: float) -> int:
    """The number of examples of a step, not above `batch_size`, that has about `STEP_TOKENS` tokens at most."""
    return min(batch_size, max(MIN_BATCH_SIZE, int(STEP_TOKENS / mean_length)))


def shorten_windows(plan: Plan, pace: Pace, lengths: Sequence[int], n_examples: int) -> Plan:
    """One window of each text, as long as possible for `MIN_EPOCHS`. `lengths`: of some texts, in tokens."""
    for max_length in (plan.max_length, *WINDOW_LENGTHS):
        if pace.tokens >= MIN_EPOCHS * n_examples * plan.mean_length:
            break
        if max_length <= plan.max_length:
            mean_length = float(np.minimum(lengths, max_length).mean())
            plan = replace(plan, max_length=max_length, mean_length=mean_length, one_window=True)
    return plan


def shrink_steps(plan: Plan, pace: Pace) -> Plan:
    """Steps of fewer examples, down to `MIN_BATCH_SIZE`, until there are `MIN_STEPS`."""
    while plan.batch_size > MIN_BATCH_SIZE and plan.n_steps(pace) < MIN_STEPS:
        plan = replace(plan, batch_size=max(MIN_BATCH_SIZE, plan.batch_size // 2))
    return plan
