"""Our numbers are Hugging Face's, for every model class their auto tables have for the seven families, in both
directions."""

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
from zoo import CELLS, FAMILIES, TABLES, hf_folder, hf_model, padded, ragged_batch

cells = pytest.mark.parametrize(("family", "job"), CELLS)
families = pytest.mark.parametrize("family", FAMILIES)


def test_every_family_has_its_cells() -> None:
    assert {family for family, _ in CELLS} == set(FAMILIES)
    assert {job for _, job in CELLS} == set(TABLES)
    assert len(CELLS) >= 52


@cells
def test_reading(family: str, job: str, root: Path) -> None:
    model = load_folder(hf_folder(family, job, root)).model
    theirs = their_outputs(hf_model(family, job), family, job)
    assert max(float(t.abs().max()) for t in theirs) > 0.1, "outputs near zero would agree by accident"
    assert difference(our_outputs(model, family, job), theirs) <= TOLERANCE


@cells
def test_writing(family: str, job: str, root: Path, tmp_path: Path) -> None:
    """Ours, with other weights than it came with, saved, and opened by their auto class."""
    loaded = load_folder(hf_folder(family, job, root))
    draw = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in loaded.model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draw) * 0.05)
    save_folder(loaded.model, tmp_path / "saved", hf_config=loaded.hf_config, files=lambda folder: None)
    auto = {
        "base": transformers.AutoModel,
        "pretraining": transformers.AutoModelForPreTraining,
        "masked": transformers.AutoModelForMaskedLM,
        "causal": transformers.AutoModelForCausalLM,
        "next sentence": transformers.AutoModelForNextSentencePrediction,
        "sequence": transformers.AutoModelForSequenceClassification,
        "token": transformers.AutoModelForTokenClassification,
        "question answering": transformers.AutoModelForQuestionAnswering,
        "choice": transformers.AutoModelForMultipleChoice,
    }[job]
    model, report = auto.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    assert difference(our_outputs(loaded.model, family, job), their_outputs(model.eval(), family, job)) <= TOLERANCE


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


@pytest.mark.parametrize(
    ("family", "job"), [cell for cell in CELLS if cell[1] in ("base", "pretraining", "masked", "sequence")]
)
def test_other_values_in_the_config(family: str, job: str, tmp_path: Path) -> None:
    """A field that was misread would hide behind its default."""
    theirs = hf_model(family, job, **OTHER_VALUES[family])
    theirs.save_pretrained(tmp_path)
    model = load_folder(tmp_path).model
    # ids 3 and 4 stay clear of the other padding id
    assert (
        difference(our_outputs(model, family, job, lowest=6), their_outputs(theirs, family, job, lowest=6)) <= TOLERANCE
    )


@families
def test_states_of_every_layer(family: str, root: Path) -> None:
    model, theirs = load_folder(hf_folder(family, "base", root)).model, hf_model(family)
    inputs, real = their_inputs(family)
    with torch.no_grad():
        states = model.encoder(our_tokens(family, *ragged_batch()), keep_layers=True)
        expected = theirs(**inputs, output_hidden_states=True).hidden_states
    assert torch.equal(states.layers[-1], states.last)
    assert difference(list(states.layers), [layer[real] for layer in expected]) <= TOLERANCE


@families
def test_attention_probabilities(family: str, root: Path) -> None:
    model, theirs = load_folder(hf_folder(family, "base", root)).model, hf_model(family, attn_implementation="eager")
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
    model, theirs = load_folder(hf_folder("xlnet", "pretraining", root)).model, hf_model("xlnet", "pretraining")
    ids, segments = ragged_batch(lengths=(7, 4, 4, 12, 5), seed=seed)
    draw = random.Random(seed)
    n_targets = [draw.randint(0, len(row) - 1) for row in ids]
    n_targets[0] = 3
    targets = [sorted(draw.sample(range(len(row)), n)) for row, n in zip(ids, n_targets, strict=True)]
    ranks = [[-1] * len(row) for row in ids]
    for row, places in zip(ranks, targets, strict=True):
        for rank, place in enumerate(draw.sample(places, len(places))):
            row[place] = rank

    starts = [sum(map(len, ids[:i])) for i in range(len(ids))]
    flat_targets = torch.tensor(
        [start + place for start, places in zip(starts, targets, strict=True) for place in places]
    )
    tokens = our_tokens("xlnet", ids, segments)
    with torch.no_grad():
        states = model.encoder.two_stream(
            tokens, torch.tensor([r for row in ranks for r in row]), flat_targets, n_targets
        )
        ours = model.read("lm", states, tokens.layout)
        expected = theirs(**_two_stream_inputs(ids, segments, ranks, targets)).logits
    picked = torch.cat([expected[i, :n] for i, n in enumerate(n_targets)])
    assert difference([ours], [picked]) <= TOLERANCE


def _two_stream_inputs(
    ids: list[list[int]], segments: list[list[int]], ranks: list[list[int]], targets: list[list[int]]
) -> dict[str, torch.Tensor]:
    input_ids, mask = padded(ids)
    rows, width = input_ids.shape
    hidden = torch.zeros(rows, width, width)
    places = torch.zeros(rows, max(map(len, targets)), width)
    for i, row in enumerate(ranks):
        for q, rank in enumerate(row):
            for k, other in enumerate(row):
                hidden[i, q, k] = float(not other < rank and other >= 0)
        for m, place in enumerate(targets[i]):
            places[i, m, place] = 1.0
    return {
        "input_ids": input_ids,
        "attention_mask": mask,
        "token_type_ids": padded(segments)[0],
        "perm_mask": hidden,
        "target_mapping": places,
    }


def test_generator_and_discriminator_share_an_embedding(root: Path) -> None:
    """What is learned through one is seen by the other, and each still equals its own class there."""
    discriminator = load_folder(hf_folder("electra", "pretraining", root)).model
    generator = load_folder(hf_folder("electra", "masked", root)).model
    generator.encoder.share_embedding(discriminator.encoder)
    with torch.no_grad():
        discriminator.encoder.embed.tokens.weight.mul_(0.5)
    theirs = hf_model("electra", "masked")
    own = hf_model("electra", "pretraining").electra.embeddings
    with torch.no_grad():
        own.word_embeddings.weight.mul_(0.5)
    theirs.electra.embeddings = own
    theirs.generator_lm_head.weight = own.word_embeddings.weight
    assert (
        difference(our_outputs(generator, "electra", "masked"), their_outputs(theirs, "electra", "masked")) <= TOLERANCE
    )
    names = dict(torch.nn.ModuleList([generator, discriminator]).named_parameters())
    assert sum("embed.tokens" in name for name in names) == 1


def test_one_token_alone(root: Path) -> None:
    model = load_folder(hf_folder("bert", "base", root)).model
    ids, _ = ragged_batch()
    with torch.no_grad():
        assert model.encoder(Tokens.ragged(torch.tensor(ids[0][:1]), [1])).last.shape == (1, 24)
