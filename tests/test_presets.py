"""Published sizes: our parameter counts are theirs, for every preset, without allocating anything."""

from __future__ import annotations

import pytest
import torch
import transformers

from bertworks.config import check_config
from bertworks.errors import BadConfig, NotFound
from bertworks.model.count import count_config
from bertworks.model.hf_config import from_hf, to_hf
from bertworks.presets import PRESETS, preset

WANTED = [
    *(f"bert-{size}" for size in ("tiny", "mini", "small", "medium", "base", "large")),
    "bert-base-chinese",
    *(f"{family}-mini" for family in ("roberta", "albert", "electra", "xlnet", "distilbert", "gpt")),
]


@pytest.mark.parametrize("name", PRESETS)
def test_counts_are_theirs(name: str) -> None:
    hf = to_hf(preset(name))
    assert hf is not None, "a preset that Hugging Face cannot express"
    config = transformers.AutoConfig.for_model(hf.pop("model_type"), **{k: v for k, v in hf.items() if k != "label2id"})
    with torch.device("meta"):
        theirs = transformers.AutoModel.from_config(config)
    assert count_config(preset(name)).total == sum(p.numel() for p in theirs.parameters())


@pytest.mark.parametrize("name", PRESETS)
def test_configs_go_round(name: str) -> None:
    hf = to_hf(preset(name))
    assert hf is not None
    assert from_hf(hf) == preset(name)


def test_bert_base_as_the_documents_count() -> None:
    table = count_config(preset("bert-base"))
    assert table.weights_and_norms == 108_808_704
    assert table.total == 109_482_240
    assert table.rows["attention"] == 12 * 4 * 768 * 768
    assert table.rows["norms"] == 25 * 2 * 768


def test_the_names_that_were_promised() -> None:
    assert set(WANTED) <= set(PRESETS)
    for name in PRESETS:
        c = preset(name).encoder
        if name.endswith("-mini"):
            assert (c.n_layers, c.hidden_size) == (4, 256), name


def test_unknown_names_get_a_hint() -> None:
    with pytest.raises(NotFound, match="did you mean 'roberta-base'"):
        preset("roberto-base")
    with pytest.raises(BadConfig, match="did you mean 'hidden_size'"):
        preset("bert-mini").override(hiden_size=3)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"hidden_size": 10**9}, "hidden_size = 1000000000"),
        ({"n_heads": 0}, "n_heads = 0"),
        ({"hidden_size": 250}, "not divisible"),
        ({"n_layers": 10**6}, "n_layers = 1000000"),
        ({"dropout": 1.5}, "dropout = 1.5"),
        ({"activation": "sine"}, "activation = 'sine'"),
        ({"attention": "relative"}, "positions='none'"),
        ({"sharing": "all", "n_groups": 9}, "n_groups 9"),
        ({"sharing": "all", "layers_per_group": 3}, "layers_per_group 3"),
        ({"vocab_size": "many"}, "vocab_size = 'many'"),
    ],
)
def test_impossible_configs_are_refused(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadConfig, match=complaint):
        preset("bert-mini").override(**changes)


def test_every_wrong_field_is_named() -> None:
    with pytest.raises(BadConfig) as error:
        check_config({"family": "bert", "encoder": {"vocab_size": 0, "n_layers": -1, "what": 3}}, "here")
    assert all(field in error.value.cause for field in ("vocab_size", "n_layers", "what"))
    assert error.value.place == "here"
