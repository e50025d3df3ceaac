"""What heads are worth: replaced one by one, with intervals; on models whose heads are known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import bertworks
from bertworks.inspect.ablation import ablate_heads
from bertworks.inspect.atlas import atlas, reads_pairs
from bertworks.inspect.importance import document_means, importance, joint_intervals
from bertworks.inspect.measures import Measure, ScoredBatch, own_measure, scored_texts
from bertworks.inspect.naming import Thresholds
from bertworks.inspect.passages import Passages, read_passages
from bertworks.inspect.recurring import RecurrenceCheck, check_recurrence, matched_words, other_sets
from bertworks.inspect.relations import InspectedText
from bertworks.inspect.replacing import AblatedModel, gradient_importance, mean_outputs, replaced
from bertworks.model.attention import edit_heads
from bertworks.text.backends import word_piece
from bertworks.text.tokenizer import Tokenizer

N_WORDS = 1200
PERIOD = 12  # tokens of a sentence: words recur in the same place of the next one
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ENOUGH = Thresholds(min_types=40, min_documents=40)
SMALL = {"hidden_size": 32, "n_heads": 4, "n_layers": 3, "ffn_size": 48, "n_positions": 128, "init_range": 0.3}
FAMILIES = {  # with the head that the family was trained with
    "bert-mini": "lm",
    "albert-mini": "lm",
    "gpt-mini": "lm",
    "xlnet-mini": "lm",
    "electra-mini": "replaced",
    "distilbert-mini": None,
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    pieces = [*SPECIAL, ".", *(f"w{number}" for number in range(N_WORDS)), "x", "##x", "##y"]
    backend = word_piece({piece: number for number, piece in enumerate(pieces)}, {"do_lower_case": True})
    return Tokenizer.from_json(json.loads(backend.to_str()), {})


@pytest.fixture(scope="module")
def documents() -> list[str]:
    """Sentences of eleven words and a full stop; three of the words recur in the same place of the next sentence."""
    rng = np.random.default_rng(0)
    chances = 1 / (np.arange(N_WORDS) + 100)
    chances /= chances.sum()
    texts = []
    for _ in range(110):
        sentences = [rng.choice(N_WORDS, PERIOD - 1, p=chances)]
        for _ in range(10):
            sentence = rng.choice(N_WORDS, PERIOD - 1, p=chances)
            kept = rng.permutation(PERIOD - 1)[:3]
            sentence[kept] = sentences[-1][kept]
            sentences.append(sentence)
        texts.append(" ".join(" ".join(f"w{word}" for word in row).capitalize() + "." for row in sentences))
    return texts


def model_of(preset: str, tokenizer: Tokenizer, head: str | None, **changes: Any) -> bertworks.Workbench:
    sizes = {**SMALL, **({"embedding_size": 24} if preset.startswith(("albert", "electra")) else {}), **changes}
    return bertworks.new(preset, tokenizer=tokenizer, heads=[head] if head else [], **sizes)


def read(model: bertworks.Workbench, documents: list[str], n: int) -> Passages:
    return read_passages(documents, model.tokenizer, n=n, pairs=reads_pairs(model), max_tokens=128)


def measure_of(model: bertworks.Workbench) -> Measure:
    return own_measure(model.model, model.tokenizer, model.pooling)


# ---------------------------------------------------------------------- replacing


@pytest.mark.parametrize("preset", FAMILIES)
def test_reused_states_give_what_a_whole_pass_gives(preset: str, tokenizer: Tokenizer, documents: list[str]) -> None:
    """Every head of every family, by each replacement; heads of shared layers one by one."""
    model = model_of(preset, tokenizer, FAMILIES[preset])
    measure = measure_of(model)
    scored = scored_texts(measure, read(model, documents, 6).passages)
    means = mean_outputs(model.model, measure, scored[:3])
    sets = [((0, 1),), ((1, 3),), ((2, 0),), ((0, 0), (2, 2))]
    batch = ScoredBatch.of(scored, model.device)
    owners = np.cumsum([0, *batch.n_targets] if not measure.is_distance else np.arange(len(scored) + 1))
    for replacement in ("mean", "zero", "uniform"):
        found = AblatedModel(model.model, measure, replacement, means).changes(scored, sets)
        with torch.inference_mode():
            whole = measure.read(model.model, measure.states(model.model, batch), batch)
            for number, heads in enumerate(sets):
                with edit_heads(replaced(heads, replacement, means)):
                    states = measure.states(model.model, batch)
                change = measure.change(measure.read(model.model, states, batch), whole).numpy()
                assert np.abs(change).max() > 1e-6
                for index, (_, own) in enumerate(found):
                    rows = slice(index, index + 1) if measure.is_distance else slice(owners[index], owners[index + 1])
                    assert np.abs(own[number] - change[rows]).max() < 2e-6 * (1 + np.abs(change).max())


def test_each_replacement_is_what_it_says(tokenizer: Tokenizer, documents: list[str]) -> None:
    """Against outputs made by hand, from left to right as well."""
    for preset in ("bert-mini", "gpt-mini"):
        model = model_of(preset, tokenizer, "lm")
        measure = measure_of(model)
        (text,) = scored_texts(measure, read(model, documents, 1).passages)
        batch = ScoredBatch.of([text], model.device)
        means = mean_outputs(model.model, measure, [text])
        outputs: dict[str, Any] = {}

        def keep(call: Any, output: Any, values: Any, sees: Any, outputs: dict[str, Any] = outputs) -> Any:
            if call.layer == 1:
                outputs.update(output=output.clone(), values=values.clone())
            return output

        for replacement in ("mean", "zero", "uniform"):
            with torch.inference_mode(), edit_heads(replaced([(1, 2)], replacement, means)), edit_heads(keep):
                model.model.encoder(batch.tokens)
            own, others = outputs["output"][0, 2], outputs["output"][0, [0, 1, 3]]
            values = outputs["values"][0, 2]
            n = len(values)
            visible = torch.ones(n, n).tril() if preset == "gpt-mini" else torch.ones(n, n)
            expected = {
                "mean": means[1, "content"][2].expand(n, -1),
                "zero": torch.zeros_like(own),
                "uniform": visible / visible.sum(1, keepdim=True) @ values,
            }[replacement]
            assert torch.allclose(own, expected, atol=1e-6) and others.abs().max() > 0


def test_gradients_are_those_of_gates(tokenizer: Tokenizer, documents: list[str]) -> None:
    """The slope of a text's loss by the strength of a head, by finite differences in double precision."""
    model = model_of("bert-mini", tokenizer, "lm", n_layers=2)
    model.model.double()
    measure = measure_of(model)
    scored = scored_texts(measure, read(model, documents, 3).passages)
    found = gradient_importance(model.model, measure, scored)
    assert found is not None and found.shape == (2, 4)

    def loss(text: Any, layer: int, head: int, strength: float) -> float:
        def scale(call: Any, outputs: Any, values: Any, sees: Any) -> Any:
            scales = torch.ones(4, 1, 1, dtype=outputs.dtype)
            scales[head] = strength
            return outputs * scales if call.layer == layer else outputs

        batch = ScoredBatch.of([text], model.device)
        with torch.inference_mode(), edit_heads(scale):
            return float(measure.read(model.model, measure.states(model.model, batch), batch).mean())

    for layer, head in ((0, 1), (1, 3)):
        slopes = [(loss(text, layer, head, 1 + 1e-5) - loss(text, layer, head, 1 - 1e-5)) / 2e-5 for text in scored]
        assert found[layer, head] == pytest.approx(np.mean(np.abs(slopes)), rel=1e-3)


# ---------------------------------------------------------------------- intervals


def test_joint_intervals_hold_together() -> None:
    """Of skewed values that are correlated over heads: in one run of twenty, at most, does any interval miss."""
    rng = np.random.default_rng(0)
    n_missed = n_missed_alone = 0
    for run in range(150):
        shared = rng.standard_gamma(2.0, (60, 1))
        values = 0.5 * shared + rng.standard_gamma(2.0, (60, 30)) - 3.0
        found = joint_intervals(values, n_resamples=400, seed=run)
        n_missed += bool(((found.low > 0) | (found.high < 0)).any())
        error = values.std(0, ddof=1) / np.sqrt(60)
        n_missed_alone += bool((np.abs(values.mean(0)) > 1.96 * error).any())
    assert n_missed <= 18 and n_missed_alone > 60
    planted = joint_intervals(rng.normal(0, 1, (60, 30)) + np.eye(30)[7] * 1.2)
    assert np.flatnonzero((planted.low > 0) | (planted.high < 0)).tolist() == [7]
    still = joint_intervals(np.concatenate([np.zeros((40, 1)), rng.normal(0, 1, (40, 1))], axis=1))
    assert still.low[0] == still.high[0] == 0, "a head that changes nothing"


def test_documents_are_the_unit_and_distances_have_the_average_head_to_beat() -> None:
    values = [np.array([[1.0, 3.0]]), np.array([[5.0]]), np.array([[7.0]])]
    assert document_means(values, [4, 4, 9]).tolist() == [[3.0], [7.0]]
    rng = np.random.default_rng(0)
    distances = rng.uniform(0.9, 1.1, (50, 6)) * np.array([1, 1, 1, 3, 1, 1])
    found = importance(distances, (2, 3), is_distance=True)
    assert found.verdicts[1] == ["worse", "better", "better"] and found.reference == pytest.approx(4 / 3, rel=0.02)
    assert importance(distances, (2, 3), is_distance=False).verdicts == [["worse"] * 3] * 2


# ---------------------------------------------------------------------- words that recur


@pytest.fixture(scope="module")
def copier(tokenizer: Tokenizer) -> bertworks.Workbench:
    """One layer, two heads. Head 0 looks at the same word, and at words a period away; it copies them. So a masked
    word that recurs is predicted by it, and by nothing else."""
    model = model_of("bert-mini", tokenizer, "lm", hidden_size=256, n_heads=2, n_layers=1, ffn_size=8)
    encoder: Any = model.model.encoder
    head: Any = model.model.heads["lm"]
    generator = torch.Generator().manual_seed(0)
    words, places = slice(0, 64), slice(64, 128)  # what is a word, and where it stands
    with torch.no_grad():
        embed = encoder.embed
        embed.norm = torch.nn.Identity()
        for table in (embed.tokens.weight, embed.positions.weight, embed.segments.weight):
            table.zero_()
        embed.tokens.weight[:, words] = torch.randn(len(embed.tokens.weight), 64, generator=generator)
        embed.tokens.weight[: len(SPECIAL) + 1, words] = 0.0
        wheel = torch.randn(PERIOD, 64, generator=generator)
        embed.positions.weight[:, places] = wheel[torch.arange(len(embed.positions.weight)) % PERIOD]
        attention = encoder.attentions[0].attn
        for part in (attention.q, attention.k, attention.v, attention.out):
            part.weight.zero_()
            part.bias.zero_()
        # Words and places weigh alike; 128 dimensions of head 0. Head 1 looks everywhere, at nothing.
        for part in (attention.q, attention.k):
            part.weight[:128, :128] = torch.eye(128) * 1.6
        attention.v.weight[:64, words] = torch.eye(64)
        attention.out.weight[words, :64] = torch.eye(64) * 4.0
        encoder.ffns[0].down.weight.zero_()
        head.dense.weight.copy_(torch.eye(256))
        head.norm.weight.fill_(0.15)
    return model


def test_words_that_recur_lose_by_the_head_that_copies_them(
    copier: bertworks.Workbench, tokenizer: Tokenizer, documents: list[str]
) -> None:
    found = atlas(copier, documents, sentences=45, thresholds=ENOUGH, ablate=True)
    assert found.names(0, 0) == ["same"] and found.names(0, 1) == []
    ablation = found.ablation
    assert ablation is not None and isinstance(ablation.same_word, RecurrenceCheck)
    check = ablation.same_word
    assert check.heads == ((0, 0),) and check.n_types >= 30 and check.is_confirmed
    assert check.difference[1] > 0.3 and check.against_others[1] > 0.3 and check.n_as_large == 0
    assert abs(check.other_change[0]) < 1e-3, "the other head does nothing"
    content = found.as_dict()
    assert content["ablation"]["same_word"]["confirmed"]
    changes = [row["importance"]["change"] for row in content["heads"]]
    assert abs(changes[0]) > 0.1 and abs(changes[1]) < 1e-5 and content["heads"][1]["importance"]["verdict"] == ""


def test_a_head_that_does_nothing_is_not_confirmed(copier: bertworks.Workbench, documents: list[str]) -> None:
    """The check is asked of the wrong head, and of too little text."""
    measure = measure_of(copier)
    passages = read(copier, documents, 100)
    ablated = AblatedModel(copier.model, measure, "zero", {})
    wrong = check_recurrence(ablated, passages.passages, passages.words, [(0, 1)], [(0, 0)])
    assert isinstance(wrong, RecurrenceCheck)
    assert not wrong.is_confirmed and wrong.against_others[2] < 0 and wrong.n_as_large == 1
    assert check_recurrence(ablated, passages.passages[:2], passages.words, [(0, 0)], [(0, 1)]) == "not enough text"
    assert "no head" in str(check_recurrence(ablated, passages.passages, passages.words, [], [(0, 1)]))
    assert "cannot be measured" in str(check_recurrence(ablated, passages.passages, passages.words, [(0, 0)], []))


def test_recurring_words_are_matched(copier: bertworks.Workbench, documents: list[str]) -> None:
    """Pair by pair: the one recurs, the other does not, and both are alike otherwise."""
    passages = read(copier, documents, 20)
    n_pairs = 0
    for passage in passages.passages:
        text = InspectedText.of(passage.units, passages.words, passage.document)
        pairs = matched_words(text, len(passage.tokens.ids))
        hidden = [token for pair in pairs for token in (*pair.recurring, *pair.single)]
        assert len(hidden) == len({*hidden}) <= 0.15 * len(passage.tokens.ids)
        counts = dict(zip(*np.unique(text.types, return_counts=True), strict=True))
        at = {int(start): unit for unit, start in enumerate(passage.units.starts)}
        for pair in pairs:
            own, other = at[pair.recurring.start], at[pair.single.start]
            assert counts[text.types[own]] > 1 and counts[text.types[other]] == 1 and text.types[own] == pair.type
            assert abs(text.log_counts[own] - text.log_counts[other]) <= 1 and len(pair.recurring) == len(pair.single)
            n_pairs += 1
    assert n_pairs > 30


def test_other_heads_are_of_the_same_layers() -> None:
    unnamed = [(layer, head) for layer in range(3) for head in range(6)]
    sets = other_sets([(0, 7), (2, 7), (2, 8)], unnamed)
    assert len({*sets}) == 10 and {tuple(layer for layer, _ in heads) for heads in sets} == {(0, 2, 2)}
    assert len(other_sets([(1, 9)], unnamed)) == 6, "there are no more"
    assert other_sets([(5, 0)], unnamed) == []


# ---------------------------------------------------------------------- in the atlas


@pytest.fixture(scope="module")
def families(tokenizer: Tokenizer, documents: list[str]) -> Iterator[dict[str, dict[str, Any]]]:
    found = {}
    for preset, head in FAMILIES.items():
        model = model_of(preset, tokenizer, head, n_layers=2)
        found[preset] = atlas(model, documents[:38], sentences=4, ablate="zero").as_dict()
    yield found


@pytest.mark.parametrize("preset", FAMILIES)
def test_what_is_measured_of_every_family(preset: str, families: dict[str, dict[str, Any]]) -> None:
    content = families[preset]
    ablation = content["ablation"]
    expected = {
        "gpt-mini": "left-to-right loss",
        "xlnet-mini": "loss of the query stream",
        "electra-mini": "loss on replaced tokens",
        "distilbert-mini": "1 - cosine of text vectors",
    }.get(preset, "masked loss")
    assert ablation["measure"] == expected and ablation["replacement"] == "zero" and ablation["documents"] >= 30
    assert ablation["distance"] == (ablation["loss"] is None) == (preset == "distilbert-mini")
    assert "unseen" in ablation["same_word"]
    assert len(content["heads"]) == 8
    for head in content["heads"]:
        found = head["importance"]
        assert found["low"] < found["change"] < found["high"] and found["verdict"] in ("worse", "better", "")
        assert (found["gradient"] is None) == ablation["distance"]
    json.dumps(content)


def test_too_few_documents_are_said(tokenizer: Tokenizer, documents: list[str]) -> None:
    model = model_of("bert-mini", tokenizer, "lm", n_layers=1)
    passages = read(model, documents, 10)
    entries = atlas(model, documents[:5], sentences=5).naming.heads
    measure = measure_of(model)
    found = ablate_heads(model.model, measure, entries, passages.passages, passages.passages, passages.words)
    assert isinstance(found.heads, str) and found.heads.startswith("not enough text") and found.of_head(0, 0) is None
    assert found.as_dict()["unseen"] == found.heads
