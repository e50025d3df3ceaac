"""Losses and gradients are transformers', the fused vocabulary loss is the plain one, and nobody sees what is to be
predicted."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import chisquare
from torch import Tensor

from bertworks.data.loader import PretrainBatch
from bertworks.model import fused_cross_entropy as fused
from bertworks.model.folder import load_folder
from bertworks.model.fused_cross_entropy import fused_cross_entropy
from bertworks.model.hf_names import mapping
from bertworks.model.model import Model
from bertworks.objectives.causal import Causal
from bertworks.objectives.masked import Masked
from bertworks.objectives.objective import Objective, sum_over_batches
from bertworks.objectives.permuted import Permuted
from bertworks.objectives.replaced import Replaced, generator_config
from bertworks.presets import preset
from zoo import PAD, VOCAB, hf_folder, hf_model, padded, ragged_batch

LENGTHS = (9, 4, 4, 12, 2)
TARGETS = (2, 7, 10, 14, 18, 20, 25, 27)  # flat positions; the last sequence has none
PAIRS = (0, 1, -1, 1, 0)
IGNORED = -100


def make_batch(lengths: tuple[int, ...] = LENGTHS, targets: tuple[int, ...] = TARGETS, seed: int = 1) -> PretrainBatch:
    ids, segments = (np.array(list(chain(*rows))) for rows in ragged_batch(lengths, seed))
    rng, where = np.random.default_rng(seed), np.array(targets, dtype=np.int64)
    ranks = np.full(len(ids), -1)
    ranks[where] = rng.permutation(len(where))
    hidden = ids.copy()
    hidden[where[::2]] = 3
    return PretrainBatch(
        ids=hidden,
        segments=segments,
        lengths=np.array(lengths),
        targets=where,
        labels=ids[where],
        pairs=np.array((PAIRS * len(lengths))[: len(lengths)]),
        examples=np.arange(len(lengths)),
        ranks=ranks,
        uniforms=rng.random(len(where)),
    )


def rows_of(batch: PretrainBatch, values: np.ndarray) -> list[list[int]]:
    return [part.tolist() for part in np.split(values, np.cumsum(batch.lengths)[:-1])]


def labels_of(batch: PretrainBatch) -> Tensor:
    flat = np.full(len(batch.ids), IGNORED)
    flat[batch.targets] = batch.labels
    return padded(rows_of(batch, flat), pad=IGNORED)[0]


def inputs_of(batch: PretrainBatch) -> dict[str, Tensor]:
    ids, mask = padded(rows_of(batch, batch.ids), pad=PAD)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": padded(rows_of(batch, batch.segments))[0]}


def bert_loss(model: Any, batch: PretrainBatch) -> Tensor:
    pairs = torch.tensor(np.where(batch.pairs < 0, IGNORED, batch.pairs))
    return model(**inputs_of(batch), labels=labels_of(batch), next_sentence_label=pairs).loss


def albert_loss(model: Any, batch: PretrainBatch) -> Tensor:
    pairs = torch.tensor(np.where(batch.pairs < 0, IGNORED, batch.pairs))
    return model(**inputs_of(batch), labels=labels_of(batch), sentence_order_label=pairs).loss


def roberta_loss(model: Any, batch: PretrainBatch) -> Tensor:
    inputs = inputs_of(batch)
    return model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], labels=labels_of(batch)).loss


def gpt2_loss(model: Any, batch: PretrainBatch) -> Tensor:
    inputs = inputs_of(batch)
    labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, IGNORED)
    return model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], labels=labels).loss


def xlnet_loss(model: Any, batch: PretrainBatch) -> Tensor:
    """Their two streams want a matrix of who may not see whom, and a row per target; sequences without targets go
    elsewhere."""
    assert batch.ranks is not None
    inputs, rank_rows = inputs_of(batch), rows_of(batch, batch.ranks)
    width = inputs["input_ids"].size(1)
    starts = np.cumsum(batch.lengths) - batch.lengths
    places = [
        batch.targets[(batch.targets >= s) & (batch.targets < s + n)] - s
        for s, n in zip(starts, batch.lengths, strict=True)
    ]
    most = max(map(len, places))
    perm, target = torch.zeros(len(places), width, width), torch.zeros(len(places), most, width)
    labels = torch.full((len(places), most), IGNORED)
    for row, (ranks, where) in enumerate(zip(rank_rows, places, strict=True)):
        known = torch.tensor(ranks)
        n = len(ranks)
        perm[row, :n, :n] = ((known[None, :] >= known[:, None]) & (known[None, :] >= 0)).float()
        perm[row, :, n:] = 1
        for slot, at in enumerate(where.tolist()):
            target[row, slot, at] = 1
            labels[row, slot] = int(batch.labels[np.flatnonzero(batch.targets == starts[row] + at)[0]])
    logits = model(
        input_ids=inputs["input_ids"], token_type_ids=inputs["token_type_ids"], perm_mask=perm, target_mapping=target
    ).logits
    return F.cross_entropy(logits.flatten(0, 1), labels.view(-1), ignore_index=IGNORED)


CASES: dict[str, tuple[str, type[Objective], Any]] = {
    "bert": ("pretraining", Masked, bert_loss),
    "roberta": ("masked", Masked, roberta_loss),
    "albert": ("pretraining", Masked, albert_loss),
    "xlnet": ("pretraining", Permuted, xlnet_loss),
    "gpt2": ("pretraining", Causal, gpt2_loss),
}


def mean_loss(objective: Objective, batch: PretrainBatch) -> Tensor:
    counts = objective.counts(batch)
    return sum((term.total * term.weight / counts[term.name] for term in objective(batch)), torch.zeros(()))


def same_gradients(model: Model, theirs: Any) -> None:
    ours = {name: parameter.grad for name, parameter in model.named_parameters()}
    for name, grad in ours.items():
        assert grad is not None, f"{name} has no gradient"
    known = dict(theirs.named_parameters())
    largest = 0.0
    for entry in mapping(model):
        expected = known[entry.theirs].grad
        found = entry.join([ours[name] for name in entry.ours])  # type: ignore[misc]
        expected = torch.zeros_like(found) if expected is None else expected
        assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5), (
            entry.theirs,
            float((found - expected).abs().max()),
        )
        largest = max(largest, float(expected.abs().max()))
    assert largest > 1e-2, "gradients near zero would agree by accident"


@pytest.mark.parametrize("family", CASES)
def test_loss_and_gradients_are_theirs(family: str, root: Path) -> None:
    job, kind, their_loss = CASES[family]
    theirs, batch = hf_model(family, job), make_batch()
    if family == "roberta":
        batch = replace(batch, segments=np.zeros_like(batch.segments))
    objective = kind(load_folder(hf_folder(family, job, root)).model)
    ours, expected = mean_loss(objective, batch), their_loss(theirs, batch)
    assert float(ours.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    ours.backward()
    expected.backward()
    same_gradients(objective.model, theirs)


def test_the_discriminator_is_theirs(root: Path) -> None:
    """Their ElectraForPreTraining judges the very tokens that our generator wrote."""
    theirs, batch = hf_model("electra", "pretraining"), make_batch()
    model = load_folder(hf_folder("electra", "pretraining", root)).model
    generator = Model.fresh(generator_config(model.config, 0.5), ["lm"], seed=3)
    objective = Replaced(model, generator, weight=50.0)
    written: list[Any] = []
    objective.model.encoder.register_forward_pre_hook(lambda module, args: written.append(args[0].ids))
    terms = {term.name: term for term in objective(batch)}
    seen = written[0].numpy()
    replaced = np.zeros(len(batch.ids), dtype=np.int64)
    replaced[batch.targets] = seen[batch.targets] != batch.labels
    assert 0 < replaced.sum() <= len(batch.targets)
    inputs = inputs_of(replace(batch, ids=seen))
    expected = theirs(**inputs, labels=padded(rows_of(batch, replaced))[0]).loss
    ours = terms["replaced"].total / objective.counts(batch)["replaced"]
    assert terms["replaced"].weight == 50.0
    assert float(ours.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    ours.backward()
    expected.backward()
    same_gradients(objective.model, theirs)
    own = [
        name for name, parameter in generator.named_parameters() if "embed" not in name and parameter.grad is not None
    ]
    assert not own, "what the generator wrote must carry no gradient of the discriminator"


def test_the_generator_is_a_masked_model(root: Path) -> None:
    """The generator's term is the masked loss of the same model alone."""
    theirs, batch = hf_model("electra", "masked"), make_batch()
    generator = load_folder(hf_folder("electra", "masked", root)).model
    objective = Replaced(Model.fresh(generator.config, ["replaced"]), generator, weight=50.0).eval()
    generator.load_state_dict(
        load_folder(hf_folder("electra", "masked", root)).model.state_dict()
    )  # sharing took its embedding
    terms = {term.name: term for term in objective(batch)}
    expected = theirs(**inputs_of(batch), labels=labels_of(batch)).loss
    assert float(terms["masked"].total.detach() / len(batch.targets)) == pytest.approx(
        float(expected.detach()), rel=1e-5
    )


# ---------------------------------------------------------------------- the vocabulary loss


@pytest.mark.parametrize("rows", [0, 1, 7, 64])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("buffer", [1, 3 * 50, 2**22])
def test_vocabulary_loss_is_cross_entropy(
    rows: int, with_bias: bool, buffer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fused.BUFFER_SIZE, "cpu", buffer)
    draw = torch.Generator().manual_seed(rows)
    make = lambda *shape: torch.randn(*shape, generator=draw, dtype=torch.float64).requires_grad_()  # noqa: E731
    states, table, bias = make(rows, 8), make(50, 8), make(50) if with_bias else None
    labels = torch.randint(50, (rows,), generator=draw)
    inputs = [t for t in (states, table, bias) if t is not None]
    guesses = fused_cross_entropy(states, table, bias, labels)
    ours = torch.autograd.grad(guesses.loss * 0.37, inputs)
    logits = F.linear(states, table, bias)
    expected = torch.autograd.grad(F.cross_entropy(logits, labels, reduction="sum") * 0.37, inputs)
    assert float(guesses.loss) == pytest.approx(float(F.cross_entropy(logits, labels, reduction="sum")), rel=1e-12)
    assert int(guesses.n_correct) == int((logits.argmax(1) == labels).sum())
    for a, b in zip(ours, expected, strict=True):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-12)


def test_vocabulary_loss_bears_large_logits() -> None:
    states, table = torch.full((2, 1), 300.0), torch.tensor([[1.0], [-1.0], [0.5]])
    guesses = fused_cross_entropy(states, table, None, torch.tensor([0, 1]))
    assert float(guesses.loss) == pytest.approx(600.0)


def test_drawn_tokens_follow_the_distribution() -> None:
    logits = torch.tensor([2.0, 0.0, 1.0, -1.0])
    n = 20_000
    uniforms = torch.rand(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    states, table = torch.ones(n, 1), logits.unsqueeze(1)
    drawn = fused_cross_entropy(states, table, None, torch.zeros(n, dtype=torch.long), uniforms).samples
    counts = torch.bincount(drawn, minlength=4).numpy()
    assert (
        chisquare(counts, logits.softmax(0).double().numpy() / float(logits.softmax(0).double().sum()) * n).pvalue
        > 1e-4
    )
    edges = fused_cross_entropy(
        states[:2], table, None, torch.zeros(2, dtype=torch.long), torch.tensor([0.0, 1 - 1e-16])
    ).samples
    assert edges.tolist() == [0, 3]


# ---------------------------------------------------------------------- nobody sees what comes


def tiny(name: str, **changes: Any) -> Any:
    return preset(name).override(vocab_size=VOCAB, hidden_size=24, n_heads=4, ffn_size=40, n_layers=2, **changes)


def test_left_to_right_sees_no_future() -> None:
    objective = Causal(Model.fresh(tiny("gpt-mini"), ["lm"], seed=1).eval().double())
    batch = make_batch()
    before = objective.target_states(batch)
    ids = batch.ids.copy()
    ids[6:9] = (ids[6:9] + 5) % VOCAB  # the end of the first sequence
    after = objective.target_states(replace(batch, ids=ids))
    changed = torch.cat([torch.arange(6), torch.arange(8, len(before))])  # states 6 and 7 stand at or after the change
    assert torch.equal(before[changed], after[changed])
    assert not torch.equal(before[6:8], after[6:8])


def test_permuted_targets_see_what_is_ranked_before_and_nothing_else() -> None:
    objective = Permuted(Model.fresh(tiny("xlnet-mini"), ["lm"], seed=1).eval().double())
    batch = make_batch((12,), (1, 4, 6, 9))
    assert batch.ranks is not None
    before = objective.target_states(batch)
    for target in batch.targets.tolist():
        ids = batch.ids.copy()
        ids[target] = (ids[target] + 5) % VOCAB
        moved = (objective.target_states(replace(batch, ids=ids)) - before).abs().amax(1) > 0
        later = batch.ranks[batch.targets] > batch.ranks[target]
        assert moved.tolist() == later.tolist(), "only what is predicted after a token may know it"


def test_sequences_of_a_batch_do_not_see_each_other() -> None:
    for name, kind in (("bert-mini", Masked), ("gpt-mini", Causal), ("xlnet-mini", Permuted)):
        objective = kind(Model.fresh(tiny(name), ["lm"], seed=1).eval().double())
        batch = make_batch()
        ids = batch.ids.copy()
        ids[:9] = (ids[:9] + 5) % VOCAB
        where = objective.targets(batch)[0]
        same = torch.from_numpy(where >= 9)
        assert torch.equal(
            objective.target_states(batch)[same], objective.target_states(replace(batch, ids=ids))[same]
        ), name


# ---------------------------------------------------------------------- evaluation


def test_evidence_adds_up_and_leaves_the_mode() -> None:
    objective = Masked(Model.fresh(tiny("bert-mini"), ["lm", "pair"], seed=1)).train()
    batches = [make_batch(seed=seed) for seed in range(3)]
    sums = sum_over_batches(objective, batches)
    assert objective.training
    measures = objective.summarise(sums)
    objective.eval()
    with torch.no_grad():
        total = sum(float(objective(batch)[0].total) for batch in batches)
    assert measures["masked"] == pytest.approx(total / (3 * len(TARGETS)), rel=1e-6)
    assert measures["perplexity"] == pytest.approx(np.exp(measures["masked"]))
    assert sums["n pair"] == 3 * sum(pair >= 0 for pair in PAIRS)


def test_auc_is_the_chance_that_a_replaced_token_scores_higher() -> None:
    config = tiny("electra-mini", embedding_size=16)
    objective = Replaced(
        Model.fresh(config, ["replaced"], seed=1), Model.fresh(generator_config(config, 0.5), ["lm"], seed=2), 50.0
    ).eval()
    batches = [make_batch(seed=seed) for seed in range(5)]
    measures = objective.summarise(sum_over_batches(objective, batches))
    with torch.no_grad():
        played = [objective._run_both(batch)[1:] for batch in batches]
    scores, replaced = (torch.cat(parts) for parts in zip(*played, strict=True))
    gaps = scores[replaced][:, None].double().sigmoid() - scores[~replaced][None].double().sigmoid()
    exact = float((gaps > 0).double().mean() + (gaps == 0).double().mean() / 2)
    assert measures["replaced_auc"] == pytest.approx(exact, abs=5e-3)
