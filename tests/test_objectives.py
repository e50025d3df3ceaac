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
    rng = np.random.default_rng(seed)
    target_positions = np.array(targets, dtype=np.int64)
    ranks = np.full(len(ids), -1)
    ranks[target_positions] = rng.permutation(len(target_positions))
    corrupted = ids.copy()
    corrupted[target_positions[::2]] = 3
    return PretrainBatch(
        ids=corrupted,
        segments=segments,
        lengths=np.array(lengths),
        targets=target_positions,
        labels=ids[target_positions],
        pairs=np.array((PAIRS * len(lengths))[: len(lengths)]),
        examples=np.arange(len(lengths)),
        ranks=ranks,
        uniforms=rng.random(len(target_positions)),
    )


def rows_of(batch: PretrainBatch, values: np.ndarray) -> list[list[int]]:
    return [row.tolist() for row in np.split(values, np.cumsum(batch.lengths)[:-1])]


def hf_labels(batch: PretrainBatch) -> Tensor:
    flat = np.full(len(batch.ids), IGNORED)
    flat[batch.targets] = batch.labels
    return padded(rows_of(batch, flat), pad=IGNORED)[0]


def hf_inputs(batch: PretrainBatch) -> dict[str, Tensor]:
    ids, mask = padded(rows_of(batch, batch.ids), pad=PAD)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": padded(rows_of(batch, batch.segments))[0]}


def bert_loss(model: Any, batch: PretrainBatch) -> Tensor:
    pairs = torch.tensor(np.where(batch.pairs < 0, IGNORED, batch.pairs))
    return model(**hf_inputs(batch), labels=hf_labels(batch), next_sentence_label=pairs).loss


def albert_loss(model: Any, batch: PretrainBatch) -> Tensor:
    pairs = torch.tensor(np.where(batch.pairs < 0, IGNORED, batch.pairs))
    return model(**hf_inputs(batch), labels=hf_labels(batch), sentence_order_label=pairs).loss


def roberta_loss(model: Any, batch: PretrainBatch) -> Tensor:
    inputs = hf_inputs(batch)
    return model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], labels=hf_labels(batch)).loss


def gpt2_loss(model: Any, batch: PretrainBatch) -> Tensor:
    inputs = hf_inputs(batch)
    labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, IGNORED)
    return model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], labels=labels).loss


def xlnet_loss(model: Any, batch: PretrainBatch) -> Tensor:
    """transformers takes a matrix of hidden keys per query, and one row per target; sequences without a target have
    rows that are ignored."""
    assert batch.ranks is not None
    inputs = hf_inputs(batch)
    rank_rows = rows_of(batch, batch.ranks)
    width = inputs["input_ids"].size(1)
    starts = np.cumsum(batch.lengths) - batch.lengths
    targets_of = [
        batch.targets[(batch.targets >= start) & (batch.targets < start + n)] - start
        for start, n in zip(starts, batch.lengths, strict=True)
    ]
    max_targets = max(map(len, targets_of))
    perm = torch.zeros(len(targets_of), width, width)
    target = torch.zeros(len(targets_of), max_targets, width)
    labels = torch.full((len(targets_of), max_targets), IGNORED)
    for row, (ranks, positions) in enumerate(zip(rank_rows, targets_of, strict=True)):
        rank = torch.tensor(ranks)
        n = len(ranks)
        perm[row, :n, :n] = ((rank[None, :] >= rank[:, None]) & (rank[None, :] >= 0)).float()
        perm[row, :, n:] = 1
        for slot, position in enumerate(positions.tolist()):
            target[row, slot, position] = 1
            labels[row, slot] = int(batch.labels[np.flatnonzero(batch.targets == starts[row] + position)[0]])
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


def assert_same_gradients(model: Model, theirs: Any) -> None:
    ours = {name: parameter.grad for name, parameter in model.named_parameters()}
    for name, grad in ours.items():
        assert grad is not None, f"{name} has no gradient"
    their_parameters = dict(theirs.named_parameters())
    largest = 0.0
    for entry in mapping(model):
        expected = their_parameters[entry.theirs].grad
        actual = entry.join([ours[name] for name in entry.ours])  # type: ignore[misc]
        expected = torch.zeros_like(actual) if expected is None else expected
        assert torch.allclose(actual, expected, rtol=1e-5, atol=1e-5), (
            entry.theirs,
            float((actual - expected).abs().max()),
        )
        largest = max(largest, float(expected.abs().max()))
    assert largest > 1e-2, "gradients near zero would agree by accident"


@pytest.mark.parametrize("family", CASES)
def test_loss_and_gradients_match_transformers(family: str, root: Path) -> None:
    head, objective_class, their_loss = CASES[family]
    theirs = hf_model(family, head)
    batch = make_batch()
    if family == "roberta":
        batch = replace(batch, segments=np.zeros_like(batch.segments))
    objective = objective_class(load_folder(hf_folder(family, head, root)).model)
    ours = mean_loss(objective, batch)
    expected = their_loss(theirs, batch)
    assert float(ours.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    ours.backward()
    expected.backward()
    assert_same_gradients(objective.model, theirs)


def test_the_discriminator_matches_transformers(root: Path) -> None:
    """ElectraForPreTraining gets the tokens that our generator sampled."""
    theirs = hf_model("electra", "pretraining")
    batch = make_batch()
    model = load_folder(hf_folder("electra", "pretraining", root)).model
    generator = Model.fresh(generator_config(model.config, 0.5), ["lm"], seed=3)
    objective = Replaced(model, generator, weight=50.0)
    inputs_seen: list[Any] = []
    objective.model.encoder.register_forward_pre_hook(lambda module, args: inputs_seen.append(args[0].ids))
    terms = {term.name: term for term in objective(batch)}
    generated = inputs_seen[0].numpy()
    replaced = np.zeros(len(batch.ids), dtype=np.int64)
    replaced[batch.targets] = generated[batch.targets] != batch.labels
    assert 0 < replaced.sum() <= len(batch.targets)
    inputs = hf_inputs(replace(batch, ids=generated))
    expected = theirs(**inputs, labels=padded(rows_of(batch, replaced))[0]).loss
    ours = terms["replaced"].total / objective.counts(batch)["replaced"]
    assert terms["replaced"].weight == 50.0
    assert float(ours.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    ours.backward()
    expected.backward()
    assert_same_gradients(objective.model, theirs)
    with_gradient = [
        name for name, parameter in generator.named_parameters() if "embed" not in name and parameter.grad is not None
    ]
    assert not with_gradient, "sampled tokens must carry no gradient of the discriminator"


def test_the_generator_is_a_masked_model(root: Path) -> None:
    """The generator's term is the masked loss of the same model alone."""
    theirs = hf_model("electra", "masked")
    batch = make_batch()
    generator = load_folder(hf_folder("electra", "masked", root)).model
    objective = Replaced(Model.fresh(generator.config, ["replaced"]), generator, weight=50.0).eval()
    generator.load_state_dict(
        load_folder(hf_folder("electra", "masked", root)).model.state_dict()
    )  # sharing replaced its embedding
    terms = {term.name: term for term in objective(batch)}
    expected = theirs(**hf_inputs(batch), labels=hf_labels(batch)).loss
    assert float(terms["masked"].total.detach() / len(batch.targets)) == pytest.approx(
        float(expected.detach()), rel=1e-5
    )


# ---------------------------------------------------------------------- fused cross-entropy


@pytest.mark.parametrize("rows", [0, 1, 7, 64])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("buffer", [1, 3 * 50, 2**22])
def test_fused_cross_entropy_matches_pytorch(
    rows: int, with_bias: bool, buffer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fused.BUFFER_SIZE, "cpu", buffer)
    generator = torch.Generator().manual_seed(rows)
    random_tensor = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()  # noqa: E731
    states = random_tensor(rows, 8)
    table = random_tensor(50, 8)
    bias = random_tensor(50) if with_bias else None
    labels = torch.randint(50, (rows,), generator=generator)
    inputs = [tensor for tensor in (states, table, bias) if tensor is not None]
    result = fused_cross_entropy(states, table, bias, labels)
    ours = torch.autograd.grad(result.loss * 0.37, inputs)
    logits = F.linear(states, table, bias)
    expected = torch.autograd.grad(F.cross_entropy(logits, labels, reduction="sum") * 0.37, inputs)
    assert float(result.loss) == pytest.approx(float(F.cross_entropy(logits, labels, reduction="sum")), rel=1e-12)
    assert int(result.n_correct) == int((logits.argmax(1) == labels).sum())
    for a, b in zip(ours, expected, strict=True):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-12)


def test_fused_cross_entropy_is_stable_for_large_logits() -> None:
    states = torch.full((2, 1), 300.0)
    table = torch.tensor([[1.0], [-1.0], [0.5]])
    result = fused_cross_entropy(states, table, None, torch.tensor([0, 1]))
    assert float(result.loss) == pytest.approx(600.0)


def test_sampled_tokens_follow_the_distribution() -> None:
    logits = torch.tensor([2.0, 0.0, 1.0, -1.0])
    n = 20_000
    uniforms = torch.rand(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    states = torch.ones(n, 1)
    table = logits.unsqueeze(1)
    samples = fused_cross_entropy(states, table, None, torch.zeros(n, dtype=torch.long), uniforms).samples
    counts = torch.bincount(samples, minlength=4).numpy()
    assert (
        chisquare(counts, logits.softmax(0).double().numpy() / float(logits.softmax(0).double().sum()) * n).pvalue
        > 1e-4
    )
    extremes = fused_cross_entropy(
        states[:2], table, None, torch.zeros(2, dtype=torch.long), torch.tensor([0.0, 1 - 1e-16])
    ).samples
    assert extremes.tolist() == [0, 3]


# ---------------------------------------------------------------------- visibility


def tiny_config(name: str, **changes: Any) -> Any:
    return preset(name).override(vocab_size=VOCAB, hidden_size=24, n_heads=4, ffn_size=40, n_layers=2, **changes)


def test_causal_objective_does_not_see_the_future() -> None:
    objective = Causal(Model.fresh(tiny_config("gpt-mini"), ["lm"], seed=1).eval().double())
    batch = make_batch()
    before = objective.target_states(batch)
    ids = batch.ids.copy()
    ids[6:9] = (ids[6:9] + 5) % VOCAB  # the end of the first sequence
    after = objective.target_states(replace(batch, ids=ids))
    unaffected = torch.cat([torch.arange(6), torch.arange(8, len(before))])  # states 6 and 7 are at or after the change
    assert torch.equal(before[unaffected], after[unaffected])
    assert not torch.equal(before[6:8], after[6:8])


def test_permuted_targets_see_only_lower_ranks() -> None:
    objective = Permuted(Model.fresh(tiny_config("xlnet-mini"), ["lm"], seed=1).eval().double())
    batch = make_batch((12,), (1, 4, 6, 9))
    assert batch.ranks is not None
    before = objective.target_states(batch)
    for target in batch.targets.tolist():
        ids = batch.ids.copy()
        ids[target] = (ids[target] + 5) % VOCAB
        is_affected = (objective.target_states(replace(batch, ids=ids)) - before).abs().amax(1) > 0
        is_later = batch.ranks[batch.targets] > batch.ranks[target]
        assert is_affected.tolist() == is_later.tolist(), "only targets that are predicted after a token may see it"


def test_sequences_of_a_batch_do_not_see_each_other() -> None:
    for name, objective_class in (("bert-mini", Masked), ("gpt-mini", Causal), ("xlnet-mini", Permuted)):
        objective = objective_class(Model.fresh(tiny_config(name), ["lm"], seed=1).eval().double())
        batch = make_batch()
        ids = batch.ids.copy()
        ids[:9] = (ids[:9] + 5) % VOCAB
        positions = objective.targets(batch)[0]
        unaffected = torch.from_numpy(positions >= 9)
        assert torch.equal(
            objective.target_states(batch)[unaffected], objective.target_states(replace(batch, ids=ids))[unaffected]
        ), name


# ---------------------------------------------------------------------- evaluation


def test_evaluation_sums_add_up_and_keep_the_training_mode() -> None:
    objective = Masked(Model.fresh(tiny_config("bert-mini"), ["lm", "pair"], seed=1)).train()
    batches = [make_batch(seed=seed) for seed in range(3)]
    sums = sum_over_batches(objective, batches)
    assert objective.training
    metrics = objective.summarise(sums)
    objective.eval()
    with torch.no_grad():
        total = sum(float(objective(batch)[0].total) for batch in batches)
    assert metrics["masked"] == pytest.approx(total / (3 * len(TARGETS)), rel=1e-6)
    assert metrics["perplexity"] == pytest.approx(np.exp(metrics["masked"]))
    assert sums["n pair"] == 3 * sum(pair >= 0 for pair in PAIRS)


def test_auc_is_the_probability_that_a_replaced_token_scores_higher() -> None:
    config = tiny_config("electra-mini", embedding_size=16)
    objective = Replaced(
        Model.fresh(config, ["replaced"], seed=1), Model.fresh(generator_config(config, 0.5), ["lm"], seed=2), 50.0
    ).eval()
    batches = [make_batch(seed=seed) for seed in range(5)]
    metrics = objective.summarise(sum_over_batches(objective, batches))
    with torch.no_grad():
        outputs = [objective._run_both(batch)[1:] for batch in batches]
    scores, replaced = (torch.cat(parts) for parts in zip(*outputs, strict=True))
    gaps = scores[replaced][:, None].double().sigmoid() - scores[~replaced][None].double().sigmoid()
    exact = float((gaps > 0).double().mean() + (gaps == 0).double().mean() / 2)
    assert metrics["replaced_auc"] == pytest.approx(exact, abs=5e-3)
