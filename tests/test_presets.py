"""Presets: parameter counts match transformers and the papers, for every preset, without allocating anything."""

from __future__ import annotations

import json

import pytest
import torch
import transformers

from bertworks.config import check_config
from bertworks.errors import BadConfig
from bertworks.model.count import count_config
from bertworks.model.hf_config import from_hf, to_hf
from bertworks.presets import PRESETS, preset
from refusals import refused

REQUIRED_PRESETS = [
    *(f"bert-{size}" for size in ("tiny", "mini", "small", "medium", "base", "large")),
    "bert-base-chinese",
    *(
        f"{family}-mini"
        for family in ("roberta", "xlm-roberta", "camembert", "albert", "electra", "xlnet", "distilbert", "gpt")
    ),
]


@pytest.mark.parametrize("name", PRESETS)
def test_parameter_counts_match_transformers(name: str) -> None:
    hf = to_hf(preset(name))
    assert hf is not None, "a preset that Hugging Face cannot express"
    config = transformers.AutoConfig.for_model(
        hf.pop("model_type"), **{key: value for key, value in hf.items() if key != "label2id"}
    )
    with torch.device("meta"):
        theirs = transformers.AutoModel.from_config(config)
    assert count_config(preset(name)).total == sum(parameter.numel() for parameter in theirs.parameters())


@pytest.mark.parametrize("name", PRESETS)
def test_configs_round_trip(name: str) -> None:
    hf = to_hf(preset(name))
    assert hf is not None
    assert from_hf(hf) == preset(name)


# Encoder and pooler, as in the papers' tables and the released files.
PUBLISHED = {
    "bert-tiny": 4_385_920,
    "bert-mini": 11_170_560,
    "bert-small": 28_763_648,
    "bert-medium": 41_373_184,
    "bert-large": 335_141_888,
    "bert-base-chinese": 102_267_648,
    "roberta-base": 124_645_632,
    "roberta-large": 355_359_744,
    "xlm-roberta-base": 278_043_648,
    "xlm-roberta-large": 559_890_432,
    "camembert-base": 110_621_952,
    "albert-base": 11_683_584,
    "albert-large": 17_683_968,
    "albert-xlarge": 58_724_864,
    "albert-xxlarge": 222_595_584,
    "electra-small": 13_483_008,
    "electra-base": 108_891_648,
    "electra-large": 334_092_288,
    "electra-base-generator": 33_511_168,
    "xlnet-base": 116_718_336,
    "xlnet-large": 360_268_800,
    "distilbert-base": 66_362_880,
    "gpt-small": 124_439_808,
    "gpt-medium": 354_823_168,
    "gpt-large": 774_030_080,
    "gpt-xl": 1_557_611_200,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_counts_match_the_published_ones(name: str) -> None:
    assert count_config(preset(name)).total == PUBLISHED[name]


@pytest.mark.parametrize(
    ("name", "model_type"),
    [
        ("bert-base", "bert"),
        ("albert-xxlarge", "albert"),
        ("electra-small", "electra"),
        ("xlnet-large", "xlnet"),
        ("gpt-small", "gpt2"),
    ],
)
def test_presets_match_the_default_configs_of_transformers(name: str, model_type: str) -> None:
    assert preset(name) == from_hf(
        json.loads(transformers.AutoConfig.for_model(model_type).to_json_string(use_diff=False))
    )


def test_parameter_table_of_bert_base() -> None:
    table = count_config(preset("bert-base"))
    assert table.weights_and_norms == 108_808_704
    assert table.total == 109_482_240
    assert table.rows["attention"] == 12 * 4 * 768 * 768
    assert table.rows["norms"] == 25 * 2 * 768


def test_required_presets_exist() -> None:
    assert set(REQUIRED_PRESETS) <= set(PRESETS)
    for name in PRESETS:
        config = preset(name).encoder
        if name.endswith("-mini"):
            assert (config.n_layers, config.hidden_size) == (4, 256), name


def test_unknown_names_get_a_hint() -> None:
    with refused("unknown-preset") as error:
        preset("roberto-base")
    assert "'roberta-base'" in error.value.remedy and "gpt-xl" not in error.value.remedy
    with refused("unknown-key") as error:
        preset("bert-mini").override(hiden_size=3)
    assert error.value.fields == ["hiden_size"]
    assert "'hidden_size'" in error.value.remedy
    assert "n_heads" not in error.value.remedy


@pytest.mark.parametrize("changes", [{"n_groups": 2}, {"layers_per_group": 2}, {"n_groups": 1, "layers_per_group": 1}])
def test_groups_without_sharing_have_no_effect(changes: dict[str, int]) -> None:
    with refused("no-effect", kind=BadConfig) as error:
        preset("bert-mini").override(**changes)
    assert error.value.fields == list(changes)
    assert preset("bert-mini").override(sharing="all", **changes)
    stored = preset("bert-mini").model_dump()
    stored["encoder"] |= changes
    assert check_config(stored), "folders that have it are opened"


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"hidden_size": 10**9}, ["hidden_size"]),
        ({"n_heads": 0}, ["n_heads"]),
        ({"hidden_size": 250}, ["hidden_size", "n_heads"]),
        ({"n_layers": 10**6}, ["n_layers"]),
        ({"dropout": 1.5}, ["dropout"]),
        ({"activation": "sine"}, ["activation"]),
        ({"attention": "relative"}, ["attention", "positions"]),
        ({"sharing": "all", "n_groups": 9}, ["n_groups", "n_layers"]),
        ({"sharing": "all", "layers_per_group": 3}, ["n_layers", "layers_per_group"]),
        ({"vocab_size": "many"}, ["vocab_size"]),
    ],
)
def test_impossible_configs_are_refused(changes: dict[str, object], fields: list[str]) -> None:
    with refused("bad-config", kind=BadConfig) as error:
        preset("bert-mini").override(**changes)
    assert error.value.fields == fields and all(field in error.value.cause for field in fields)
    value = changes[fields[-1] if fields[-1] in changes else fields[0]]
    assert str(value) in error.value.cause


def test_every_invalid_field_is_named() -> None:
    with pytest.raises(BadConfig) as error:
        check_config({"family": "bert", "encoder": {"vocab_size": 0, "n_layers": -1, "what": 3}}, "here")
    assert error.value.fields == ["vocab_size", "n_layers", "what"]
    assert all(field in error.value.cause for field in error.value.fields)
    assert error.value.place == "here"
