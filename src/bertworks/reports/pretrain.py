"""The report of a pre-training run: loss curves, held-out metrics, speed, and predictions on held-out text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertworks.config import Pairs
from bertworks.data.corruption import Numbers
from bertworks.data.examples import NO_LABEL
from bertworks.data.loader import PretrainBatch
from bertworks.files import read_json
from bertworks.measure.metrics import CJK_CHARACTER
from bertworks.model.locate import RUN
from bertworks.objectives.objective import Objective
from bertworks.page.curves import Curve, figure
from bertworks.page.html import bilingual, escape
from bertworks.reports.masks import LABELS
from bertworks.reports.page import REPORT, STEPS, curve_points, duration, key_figures, settings_sections, write_report
from bertworks.text.tokenizer import Tokenizer
from bertworks.train.events import (
    METRICS,
    Evaluated,
    Event,
    Started,
    Title,
    Trained,
    last,
    lowest_loss,
    of_kind,
    read_events,
)

SPACE_SIGNS = ("▁", "Ġ")  # of SentencePiece, of byte-level BPE
OPENING = frozenset("([{“‘«（《「『")
CLOSING = frozenset(".,;:!?%)]}”’»…。，、；：！？）》」』")


@dataclass(frozen=True)
class HeldOutSample:
    """Held-out sequences for the report."""

    batch: PretrainBatch
    word_starts: NDArray[np.bool_]  # (N,)
    pairs: Pairs  # what the labels of the pairs mean


def write_pretrain_report(
    run: Path, objective: Objective, held_out: HeldOutSample | None, tokenizer: Tokenizer
) -> Path:
    """From the run's files, and predictions on `held_out` by the model of the last step, which is not always the saved
    one."""
    record = read_json(run / RUN)
    events = read_events(run / METRICS)
    body = [
        _key_figures(events, objective),
        *_curves(events, objective),
        *_predictions(objective, held_out, tokenizer),
        *settings_sections(record),
    ]
    title = (f"Pre-training: {run.name}", f"预训练：{run.name}")
    return write_report(run / REPORT, title, body)


def _key_figures(events: list[Event], objective: Objective) -> str:
    trained = of_kind(events, Trained)
    best = lowest_loss(events)
    started = last(events, Started)
    end = events[-1] if events else Event()
    figures = [
        (f"{end.step:,}", ("steps", "步数")),
        (f"{end.tokens:,}", ("training tokens", "训练词元数")),
        (duration(end.seconds), ("time", "用时")),
    ]
    metrics = best.metrics if best is not None else {}
    if isinstance(metrics.get(objective.main_term), float):
        figures.append((f"{metrics[objective.main_term]:.3f}", ("best held-out loss (nats)", "最低留出集损失（nat）")))
        if started is not None and started.unigram_loss:
            figures.append((f"{started.unigram_loss:.3f}", ("unigram baseline (nats)", "一元词频基线（nat）")))
        figures.append((f"{metrics['perplexity']:,.1f}", ("held-out perplexity", "留出集困惑度")))
        for name, (english, chinese) in objective.terms.items():
            if f"{name}_accuracy" in metrics:
                figures.append((f"{metrics[f'{name}_accuracy']:.1%}", (f"accuracy, {english}", f"准确率：{chinese}")))
        for name, (english, chinese) in objective.extra_metrics.items():
            if name in metrics:
                figures.append((f"{metrics[name]:.3f}", (english, chinese)))
    if trained:
        speed = np.median([event.tokens_per_second for event in trained])
        figures.append((f"{speed:,.0f}", ("tokens per second", "词元/秒")))
        figures.append(_mfu_figure(trained))
    return key_figures(figures) + (_best_note(best) if best is not None else "")


def _best_note(best: Evaluated) -> str:
    note = bilingual(
        f"The saved model is the model of step {best.step:,}, where the held-out loss is lowest; the held-out figures "
        "are of that evaluation.",
        f"保存的模型取自第 {best.step:,} 步，此时留出集损失最低；以上留出集指标均来自该次评估。",
    )
    return f'<p class="dim">{note}</p>'


def _mfu_figure(trained: list[Trained]) -> tuple[str, tuple[str, str]]:
    """The peak of older runs may have been measured beside other processes: shares above 1 are none."""
    shares = [event.mfu for event in trained if event.mfu is not None and event.mfu <= 1]
    if not shares:
        return "–", ("peak FLOP/s could not be measured", "未能测得峰值算力")
    return f"{np.median(shares):.0%}", ("of peak FLOP/s (MFU)", "占峰值算力（MFU）")


def _curves(events: list[Event], objective: Objective) -> list[str]:
    trained = of_kind(events, Trained)
    evaluated = of_kind(events, Evaluated)
    figures = [
        loss_figure(events, name, title, with_baseline=name == objective.main_term)
        for name, title in objective.terms.items()
    ]
    accuracy_titles = {
        f"{name}_accuracy": (f"accuracy: {english}", f"准确率：{chinese}")
        for name, (english, chinese) in objective.terms.items()
    }
    accuracies = [
        Curve(title, curve_points(evaluated, [event.metrics.get(name) for event in evaluated]), dots=True)
        for name, title in (accuracy_titles | objective.extra_metrics).items()
    ]
    title = ("Held-out accuracy", "留出集准确率")
    figures.append(figure(title, accuracies, x_title=STEPS, y_percent=True, best=_best_step(events)))
    lr = Curve(("learning rate", "学习率"), curve_points(trained, [event.lr for event in trained]))
    figures.append(figure(("Learning rate", "学习率"), [lr], x_title=STEPS))
    speeds = curve_points(trained, [event.tokens_per_second for event in trained])
    figures.append(figure(("Speed", "速度"), [Curve(("tokens per second", "词元/秒"), speeds)], x_title=STEPS))
    return ['<div class="figures">', *figures, "</div>"]


def loss_figure(events: list[Event], term: str, title: Title, *, with_baseline: bool = True) -> str:
    """A term of the loss in training and on held-out text; the baseline is the loss of token frequencies alone."""
    trained = of_kind(events, Trained)
    evaluated = of_kind(events, Evaluated)
    started = last(events, Started)
    unigram = started.unigram_loss if started is not None and with_baseline else None
    train_loss = curve_points(trained, [event.terms.get(term) for event in trained])
    held_out_loss = curve_points(evaluated, [event.metrics.get(term) for event in evaluated])
    curves = [Curve(("training", "训练"), train_loss), Curve(("held out", "留出集"), held_out_loss, dots=True)]
    baseline = (("unigram baseline", "一元词频基线"), unigram) if unigram is not None else None
    titles = (f"Loss: {title[0]}", f"损失：{title[1]}")
    return figure(titles, curves, baseline=baseline, x_title=STEPS, best=_best_step(events))


def _best_step(events: list[Event]) -> int | None:
    best = lowest_loss(events)
    return best.step if best is not None else None


def _predictions(objective: Objective, sample: HeldOutSample | None, tokenizer: Tokenizer) -> list[str]:
    """Held-out sequences, with the model's predictions at the targets, and for their sentence pairs."""
    if sample is None:
        return []
    batch = sample.batch
    positions, target_ids = objective.targets(batch)
    top1_ids, confidences = (values.tolist() for values in objective.top1(batch))
    originals = batch.ids.copy()
    originals[positions] = target_ids
    predicted = zip(positions.tolist(), target_ids.tolist(), top1_ids, confidences, strict=True)
    guesses = {
        position: _token_guess(original, top1, confidence, tokenizer)
        for position, original, top1, confidence in predicted
    }
    tokens = [guesses.get(index) or _plain_token(id, tokenizer) for index, id in enumerate(originals.tolist())]
    separators = _separators(originals.tolist(), sample.word_starts.tolist(), tokenizer)
    pieces = [separator + token for separator, token in zip(separators, tokens, strict=True)]
    ends = np.cumsum(batch.lengths).tolist()
    boxes = [
        f'<div class="example">{pair}{"".join(pieces[begin:end])}</div>'
        for pair, begin, end in zip(_pair_guesses(objective, sample), [0, *ends[:-1]], ends, strict=True)
    ]
    return [
        f"<h2>{bilingual('Predictions on held-out text', '留出文本上的预测')}</h2>",
        _legend(originals, tokenizer),
        *boxes,
    ]


def _legend(ids: Numbers, tokenizer: Tokenizer) -> str:
    english = (
        "Text that was not trained on, predicted by the model at the last step. Green: the top prediction is correct. "
        "Red: what is correct, then the top prediction struck out. Percentages: the model's confidence in its top "
        "prediction."
    )
    chinese = (
        "未参与训练的文本，由最后一步的模型预测。绿色：首选预测正确；红色：正确答案，其后删除线为首选预测；"
        "百分数为首选预测的置信度。"
    )
    n_unknown = int((ids == tokenizer.unknown_id).sum()) if tokenizer.unknown_id is not None else 0
    if n_unknown:
        unknown = escape(tokenizer.special["unk"])
        english += f" {unknown}: {n_unknown:,} of {len(ids):,} tokens are words that the vocabulary cannot spell."
        chinese += f"{unknown}：词表无法表示的词，{len(ids):,} 个词元中有 {n_unknown:,} 个。"
    return f"<p>{bilingual(english, chinese)}</p>"


def _token_guess(original: int, top1: int, confidence: float, tokenizer: Tokenizer) -> str:
    correct = tokenizer.readable(original)
    if original == top1:
        return _guess(escape(correct), None, confidence)
    readable = tokenizer.readable(top1)
    # "s" and "##s" are different tokens.
    return _guess(escape(correct), escape(readable if readable != correct else tokenizer.piece(top1)), confidence)


def _guess(correct: str, wrong: str | None, confidence: float) -> str:
    """HTML of what is correct and, if it is something else, of the model's top prediction."""
    struck_out = f" <s>{wrong}</s>" if wrong is not None else ""
    style = "right" if wrong is None else "wrong"
    return f'<span class="guess {style}">{correct}{struck_out}<small>{confidence:.0%}</small></span>'


def _plain_token(id: int, tokenizer: Tokenizer) -> str:
    text = escape(tokenizer.readable(id))
    if id == tokenizer.unknown_id:
        return f'<span class="unknown">{text}</span>'
    return f'<span class="dim">{text}</span>' if id in tokenizer.reserved_ids else text


def _separators(ids: Sequence[int], word_starts: Sequence[bool], tokenizer: Tokenizer) -> list[str]:
    """What stands before each token: a space before a word, nothing within one, an ellipsis where a sequence begins in
    the middle of one."""
    pieces = [tokenizer.piece(id) or "" for id in ids]
    is_special = [id in tokenizer.reserved_ids for id in ids]
    separators = [""]
    for index in range(1, len(ids)):
        if is_special[index]:
            separators.append(" ")
        elif is_special[index - 1]:
            separators.append(" " if word_starts[index] else " …")
        else:
            spaced = word_starts[index] and _has_space_between(pieces[index - 1], pieces[index], tokenizer)
            separators.append(" " if spaced else "")
    return separators


def _has_space_between(before: str, piece: str, tokenizer: Tokenizer) -> bool:
    """Between two words. Tokenizers that keep spaces have a sign for them; where there is none, Chinese has no spaces,
    and punctuation none on its inner side."""
    if not tokenizer.spaces_all_words:
        return piece.startswith(SPACE_SIGNS)
    is_chinese = bool(CJK_CHARACTER.match(before[-1:]) and CJK_CHARACTER.match(piece))
    return not is_chinese and piece not in CLOSING and before not in OPENING


def _pair_guesses(objective: Objective, sample: HeldOutSample) -> list[str]:
    """For each sequence what its sentence pair is, shown as tokens are; empty where there is no pair."""
    labels = sample.batch.pairs.tolist()
    top1_pairs = objective.top1_pairs(sample.batch)
    if top1_pairs is None:
        return [""] * len(labels)
    return [
        _pair_guess(sample.pairs, *guess) if guess[0] != NO_LABEL else ""
        for guess in zip(labels, *(values.tolist() for values in top1_pairs), strict=True)
    ]


def _pair_guess(pairs: Pairs, label: int, top1: int, confidence: float) -> str:
    correct, predicted = (bilingual(*LABELS[pairs, number][1:]) for number in (label, top1))
    return f"<header>{_guess(correct, None if top1 == label else predicted, confidence)}</header>"
