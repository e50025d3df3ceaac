"""Our outputs match those of transformers, for every model class that its auto mappings have for the nine families, in
both directions."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bertworks.model.attention import record_attention
from bertworks.model.folder import load_folder, save_folder
from bertworks.model.layout import Tokens
from parity import TOLERANCE, difference, our_outputs, our_tokens, their_inputs, their_outputs
from zoo import AUTO_MAPPINGS, FAMILIES, MODEL_CLASSES, hf_folder, hf_model, padded, ragged_batch

every_model_class = pytest.mark.parametrize(("family", "head"), MODEL_CLASSES)
every_family = pytest.mark.parametrize("family", FAMILIES)


def test_every_family_and_head_is_covered() -> None:
    assert {family for family, _ in MODEL_CLASSES} == set(FAMILIES)
    assert {head for _, head in MODEL_CLASSES} == set(AUTO_MAPPINGS)
    assert len(MODEL_CLASSES) >= 68


@every_model_class
def test_models_of_transformers_open_here(family: str, head: str, root: Path) -> None:
    model = load_folder(hf_folder(family, head, root)).model
    theirs = their_outputs(hf_model(family, head), family, head)
    assert max(float(tensor.abs().max()) for tensor in theirs) > 0.1, "outputs near zero would agree by accident"
    assert difference(our_outputs(model, family, head), theirs) <= TOLERANCE


@every_model_class
def test_saved_models_open_in_transformers(family: str, head: str, root: Path, tmp_path: Path) -> None:
    """Our model with changed weights, saved, and opened by the auto class of transformers."""
    loaded = load_folder(hf_folder(family, head, root))
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in loaded.model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    save_folder(loaded.model, tmp_path / "saved", hf_config=loaded.hf_config, files=lambda folder: None)
    auto_class = {
        "base": transformers.AutoModel,
        "pretraining": transformers.AutoModelForPreTraining,
        "masked": transformers.AutoModelForMaskedLM,
        "causal": transformers.AutoModelForCausalLM,
        "next sentence": transformers.AutoModelForNextSentencePrediction,
        "sequence": transformers.AutoModelForSequenceClassification,
        "token": transformers.AutoModelForTokenClassification,
        "question answering": transformers.AutoModelForQuestionAnswering,
        "choice": transformers.AutoModelForMultipleChoice,
    }[head]
    model, report = auto_class.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]
    assert difference(our_outputs(loaded.model, family, head), their_outputs(model.eval(), family, head)) <= TOLERANCE


OTHER_VALUES: dict[str, dict[str, Any]] = {
    "bert": {"hidden_act": "relu", "layer_norm_eps": 1e-2, "type_vocab_size": 3},
    "roberta": {"hidden_act": "relu", "layer_norm_eps": 1e-2, "type_vocab_size": 3, "pad_token_id": 5},
    "albert": {
        "hidden_act": "relu",
        "layer_norm_eps": 1e-2,
        "num_hidden_groups": 3,
        "num_hidden_layers": 3,
        "embedding_size": 24,
    },
    "electra": {"hidden_act": "relu", "layer_norm_eps": 1e-2, "embedding_size": 24},
    "xlnet": {"ff_activation": "relu", "layer_norm_eps": 1e-2},
    "distilbert": {"activation": "relu"},
    "gpt2": {"activation_function": "relu", "layer_norm_epsilon": 1e-2, "n_inner": None},
}
OTHER_VALUES |= dict.fromkeys(("xlm-roberta", "camembert"), OTHER_VALUES["roberta"])


@pytest.mark.parametrize(
    ("family", "head"),
    [model_class for model_class in MODEL_CLASSES if model_class[1] in ("base", "pretraining", "masked", "sequence")],
)
def test_config_values_other_than_the_defaults(family: str, head: str, tmp_path: Path) -> None:
    """With defaults, a field that is read wrongly would go unnoticed."""
    theirs = hf_model(family, head, **OTHER_VALUES[family])
    theirs.save_pretrained(tmp_path)
    model = load_folder(tmp_path).model
    # ids from 6 on, since the padding id is 5 here
    assert (
        difference(our_outputs(model, family, head, lowest=6), their_outputs(theirs, family, head, lowest=6))
        <= TOLERANCE
    )


@every_family
def test_states_of_every_layer(family: str, root: Path) -> None:
    model = load_folder(hf_folder(family, "base", root)).model
    theirs = hf_model(family)
    inputs, is_token = their_inputs(family)
    with torch.no_grad():
        states = model.encoder(our_tokens(family, *ragged_batch()), keep_layers=True)
        expected = theirs(**inputs, output_hidden_states=True).hidden_states
    assert torch.equal(states.layers[-1], states.last)
    assert difference(list(states.layers), [layer[is_token] for layer in expected]) <= TOLERANCE


@every_family
def test_attention_probabilities(family: str, root: Path) -> None:
    model = load_folder(hf_folder(family, "base", root)).model
    theirs = hf_model(family, attn_implementation="eager")
    inputs, _ = their_inputs(family)
    with torch.no_grad(), record_attention() as recording:
        model.encoder(our_tokens(family, *ragged_batch()))
    with torch.no_grad():
        expected = theirs(**inputs, output_attentions=True).attentions
    assert len(recording.layers) == len(expected) == model.config.encoder.n_layers
    for layer, probabilities in zip(recording.layers, expected, strict=True):
        for sequence, row in enumerate(inputs["attention_mask"].bool()):
            ours = layer.probabilities[sequence]
            assert torch.allclose(ours, probabilities[sequence][:, row][:, :, row], atol=TOLERANCE)
            assert torch.allclose(ours.sum(-1), torch.ones(ours.shape[:2]), atol=TOLERANCE)


@pytest.mark.parametrize("seed", range(5))
def test_two_streams_with_ragged_targets(seed: int, root: Path) -> None:
    """XLNet's permutation language model: any order, any number of targets in each sequence, none included."""
    model = load_folder(hf_folder("xlnet", "pretraining", root)).model
    theirs = hf_model("xlnet", "pretraining")
    ids, segments = ragged_batch(lengths=(7, 4, 4, 12, 5), seed=seed)
    rng = random.Random(seed)
    n_targets = [rng.randint(0, len(row) - 1) for row in ids]
    n_targets[0] = 3
    targets = [sorted(rng.sample(range(len(row)), n)) for row, n in zip(ids, n_targets, strict=True)]
    ranks = [[-1] * len(row) for row in ids]
    for row, positions in zip(ranks, targets, strict=True):
        for rank, position in enumerate(rng.sample(positions, len(positions))):
            row[position] = rank

    starts = [sum(map(len, ids[:i])) for i in range(len(ids))]
    flat_targets = torch.tensor(
        [start + position for start, positions in zip(starts, targets, strict=True) for position in positions]
    )
    tokens = our_tokens("xlnet", ids, segments)
    with torch.no_grad():
        states = model.encoder.two_stream(
            tokens, torch.tensor([rank for row in ranks for rank in row]), flat_targets, n_targets
        )
        ours = model.read("lm", states, tokens.layout)
        expected = theirs(**_two_stream_inputs(ids, segments, ranks, targets)).logits
    expected_targets = torch.cat([expected[i, :n] for i, n in enumerate(n_targets)])
    assert difference([ours], [expected_targets]) <= TOLERANCE


def _two_stream_inputs(
    ids: list[list[int]], segments: list[list[int]], ranks: list[list[int]], targets: list[list[int]]
) -> dict[str, torch.Tensor]:
    input_ids, mask = padded(ids)
    rows, width = input_ids.shape
    perm_mask = torch.zeros(rows, width, width)
    target_mapping = torch.zeros(rows, max(map(len, targets)), width)
    for i, row in enumerate(ranks):
        for q, rank in enumerate(row):
            for k, other_rank in enumerate(row):
                perm_mask[i, q, k] = float(not other_rank < rank and other_rank >= 0)
        for target, position in enumerate(targets[i]):
            target_mapping[i, target, position] = 1.0
    return {
        "input_ids": input_ids,
        "attention_mask": mask,
        "token_type_ids": padded(segments)[0],
        "perm_mask": perm_mask,
        "target_mapping": target_mapping,
    }


def test_generator_and_discriminator_share_an_embedding(root: Path) -> None:
    """A change through one is seen by the other, and each still matches its class in transformers."""
    discriminator = load_folder(hf_folder("electra", "pretraining", root)).model
    generator = load_folder(hf_folder("electra", "masked", root)).model
    generator.encoder.share_embedding(discriminator.encoder)
    with torch.no_grad():
        discriminator.encoder.embed.tokens.weight.mul_(0.5)
    theirs = hf_model("electra", "masked")
    their_embeddings = hf_model("electra", "pretraining").electra.embeddings
    with torch.no_grad():
        their_embeddings.word_embeddings.weight.mul_(0.5)
    theirs.electra.embeddings = their_embeddings
    theirs.generator_lm_head.weight = their_embeddings.word_embeddings.weight
    assert (
        difference(our_outputs(generator, "electra", "masked"), their_outputs(theirs, "electra", "masked")) <= TOLERANCE
    )
    names = dict(torch.nn.ModuleList([generator, discriminator]).named_parameters())
    assert sum("embed.tokens" in name for name in names) == 1


def test_a_single_token(root: Path) -> None:
    model = load_folder(hf_folder("bert", "base", root)).model
    ids, _ = ragged_batch()
    with torch.no_grad():
        assert model.encoder(Tokens.ragged(torch.tensor(ids[0][:1]), [1])).last.shape == (1, 24)
