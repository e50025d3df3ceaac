"""Ablation of a model's heads: what each is worth, and whether heads that look at the same word are what a model reads
words that recur by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bertworks.inspect.heads import HeadEntry
from bertworks.inspect.importance import CONFIDENCE, MIN_DOCUMENTS, Importance, document_means, importance
from bertworks.inspect.measures import Measure, scored_texts
from bertworks.inspect.passages import Passage
from bertworks.inspect.recurring import RecurrenceCheck, check_recurrence
from bertworks.inspect.replacing import AblatedModel, Head, Replacement, gradient_importance, mean_outputs
from bertworks.inspect.units import WordTypes
from bertworks.model.model import Model
from bertworks.tasks.inference import Progress, no_progress

N_SEQUENCES = 200  # that heads are measured on
N_RECURRING = 600  # that recurring words are looked for in


@dataclass(frozen=True)
class Ablation:
    """What heads are worth; each of the two is a text that says why, where it cannot be measured."""

    measure: str
    is_distance: bool
    replacement: Replacement
    n_sequences: int
    n_documents: int
    loss: float | None  # of the whole model; a distance has none
    heads: Importance | str
    same_word: RecurrenceCheck | str

    def of_head(self, layer: int, head: int) -> dict[str, Any] | None:
        """As the JSON of an atlas has it."""
        if isinstance(self.heads, str):
            return None
        importances = self.heads
        numbers = {
            "change": importances.change[layer, head],
            "low": importances.low[layer, head],
            "high": importances.high[layer, head],
            "gradient": None if importances.gradient is None else importances.gradient[layer, head],
        }
        rounded = {name: None if value is None else round(float(value), 6) for name, value in numbers.items()}
        return {**rounded, "verdict": importances.verdicts[layer][head]}

    def as_dict(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            "measure": self.measure,
            "distance": self.is_distance,
            "replacement": self.replacement,
            "sequences": self.n_sequences,
            "documents": self.n_documents,
            "loss": None if self.loss is None else round(self.loss, 6),
            "same_word": self._same_word(),
        }
        if isinstance(self.heads, str):
            return {**content, "unseen": self.heads}
        verdicts = [verdict for row in self.heads.verdicts for verdict in row]
        return {
            **content,
            "confidence": CONFIDENCE,
            "critical": round(self.heads.critical, 4),
            "reference": round(self.heads.reference, 6),
            "worse": verdicts.count("worse"),
            "better": verdicts.count("better"),
        }

    def _same_word(self) -> dict[str, Any]:
        check = self.same_word
        if isinstance(check, str):
            return {"unseen": check}
        return {
            "heads": [list(head) for head in check.heads],
            "confirmed": check.is_confirmed,
            "pairs": check.n_pairs,
            "types": check.n_types,
            "documents": check.n_documents,
            "other_sets": check.n_other_sets,
            "as_large": check.n_as_large,
            **{
                name: [round(value, 6) for value in getattr(check, name)]
                for name in ("loss", "change", "other_change", "difference", "against_others")
            },
        }


def ablate_heads(
    model: Model,
    measure: Measure,
    entries: Sequence[HeadEntry],
    passages: Sequence[Passage],
    held_out: Sequence[Passage],
    words: WordTypes,
    *,
    replacement: Replacement = "mean",
    progress: Progress = no_progress,
) -> Ablation:
    """`entries`: the heads, with their names; `passages`: those they were named on, which the means are of; `held_out`:
    others, which heads are measured on."""
    scored = scored_texts(measure, held_out[:N_SEQUENCES])
    n_documents = len({text.document for text in scored})
    heads: list[Head] = [(entry.layer, entry.head) for entry in entries]
    shape = 1 + max(layer for layer, _ in heads), 1 + max(head for _, head in heads)
    loss: float | None = None
    importances: Importance | str = f"not enough text: {n_documents} other documents, {MIN_DOCUMENTS} are needed"
    means = mean_outputs(model, measure, scored_texts(measure, passages[:N_SEQUENCES])) if replacement == "mean" else {}
    ablated = AblatedModel(model, measure, replacement, means)
    if n_documents >= MIN_DOCUMENTS:
        documents = [text.document for text in scored]
        results = ablated.changes(scored, [(head,) for head in heads], progress)
        changes = document_means([change for _, change in results], documents)
        gradient = gradient_importance(model, measure, scored)
        importances = importance(changes, shape, is_distance=measure.is_distance, gradient=gradient)
        if not measure.is_distance:
            loss = float(document_means([base[None] for base, _ in results], documents).mean())
    same = [(entry.layer, entry.head) for entry in entries if "same" in [head_name.name for head_name in entry.names]]
    unnamed = [(entry.layer, entry.head) for entry in entries if not entry.names]
    recurrence = check_recurrence(ablated, held_out[:N_RECURRING], words, same, unnamed, progress)
    return Ablation(
        measure.title, measure.is_distance, replacement, len(scored), n_documents, loss, importances, recurrence
    )
