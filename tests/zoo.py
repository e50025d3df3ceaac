"""Tiny random models of every family, ours and Hugging Face's, for the tests. Nothing is downloaded."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto as auto

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

VOCAB, PAD = 99, 0
FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "albert", "electra", "xlnet", "distilbert", "gpt2")
AUTO_MAPPINGS = {
    "base": "MODEL_MAPPING_NAMES",
    "pretraining": "MODEL_FOR_PRETRAINING_MAPPING_NAMES",
    "masked": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "causal": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "next sentence": "MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING_NAMES",
    "sequence": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    "token": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
    "question answering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES",
    "choice": "MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES",
}
MODEL_CLASSES = [
    (family, head) for family in FAMILIES for head, table in AUTO_MAPPINGS.items() if family in getattr(auto, table)
]

SIZES: dict[str, dict[str, Any]] = {
    "bert": {
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 40,
        "max_position_embeddings": 32,
    },
    "roberta": {
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 40,
        "max_position_embeddings": 32,
        "pad_token_id": PAD,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "albert": {
        "embedding_size": 16,
        "hidden_size": 24,
        "num_hidden_layers": 4,
        "num_hidden_groups": 2,
        "inner_group_num": 2,
        "num_attention_heads": 4,
        "intermediate_size": 40,
        "max_position_embeddings": 32,
    },
    "electra": {
        "embedding_size": 16,
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 40,
        "max_position_embeddings": 32,
    },
    "xlnet": {
        "d_model": 24,
        "n_layer": 3,
        "n_head": 4,
        "d_inner": 40,
        "pad_token_id": PAD,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "distilbert": {"dim": 24, "n_layers": 3, "n_heads": 4, "hidden_dim": 40, "max_position_embeddings": 32},
    "gpt2": {
        "n_embd": 24,
        "n_layer": 3,
        "n_head": 4,
        "n_inner": 40,
        "n_positions": 32,
        "pad_token_id": PAD,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
}
SIZES |= dict.fromkeys(("xlm-roberta", "camembert"), SIZES["roberta"])


def hf_config(family: str, head: str = "base", **changes: Any) -> Any:
    config = transformers.AutoConfig.for_model(family, vocab_size=VOCAB, **{**SIZES[family], **changes})
    if head in ("sequence", "token"):
        config.num_labels = 3
    if head == "causal" and hasattr(config, "is_decoder"):
        config.is_decoder = True
    return config


def hf_model(family: str, head: str = "base", *, seed: int = 0, faint: bool = False, **changes: Any) -> Any:
    """A model of transformers with weights from N(0, 0.2), those of norms from N(1, 0.2), so that outputs are large.

    `faint`: embeddings so small that a norm's epsilon matters.
    """
    name = getattr(auto, AUTO_MAPPINGS[head])[family]
    model = getattr(transformers, name)(hf_config(family, head, **changes))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = name.endswith("weight") and any(
                norm in name.lower() for norm in ("layernorm", "layer_norm", "ln_")
            )
            parameter.normal_(1.0 if is_norm else 0.0, 0.2, generator=generator)
            if (
                faint
                and name.endswith("weight")
                and any(table in name for table in ("embeddings.", "word_embedding", "wte", "wpe", "lm_head.decoder"))
                and not is_norm
            ):
                parameter.mul_(1e-4)
    return model.eval()


@functools.cache
def hf_folder(family: str, head: str, root: Path, faint: bool = False) -> Path:
    folder = root / f"{family}-{head}{'-faint' * faint}".replace(" ", "-")
    hf_model(family, head, faint=faint).save_pretrained(folder)
    return folder


def ragged_batch(
    lengths: tuple[int, ...] = (7, 3, 3, 12, 1), seed: int = 1, lowest: int = 3
) -> tuple[list[list[int]], list[list[int]]]:
    """Sequences of ids (never padding) and of segments: sentence A, then sentence B."""
    rng = random.Random(seed)
    ids = [[rng.randrange(lowest, VOCAB) for _ in range(length)] for length in lengths]
    segments = [[int(i > length // 2) for i in range(length)] for length in lengths]
    return ids, segments


def padded(rows: list[list[int]], left: bool = False, pad: int = PAD) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows padded to a rectangle (B, T), and its mask."""
    width = max(map(len, rows))
    padding = [[pad] * (width - len(row)) for row in rows]
    values = [pad_row + row if left else row + pad_row for row, pad_row in zip(rows, padding, strict=True)]
    mask = [
        [0] * len(pad_row) + [1] * len(row) if left else [1] * len(row) + [0] * len(pad_row)
        for row, pad_row in zip(rows, padding, strict=True)
    ]
    return torch.tensor(values), torch.tensor(mask)
