"""Which tokens two texts have in common, so that the attention of one can be compared with that of the other."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher

from bertworks.errors import Unsupported
from bertworks.inspect.units import SPECIAL
from bertworks.inspect.view import AttentionView


def check_comparable(view: AttentionView, other: AttentionView) -> None:
    """The same heads, and at least one word in common."""
    shapes = [each.probabilities.shape[:2] for each in (view, other)]
    if shapes[0] != shapes[1]:
        (layers, heads), (other_layers, other_heads) = shapes
        cause = f"{layers} x {heads} heads cannot be compared with {other_layers} x {other_heads}"
        raise Unsupported(cause, remedy="a model of the same size", code="not-comparable")
    shared = [at for at, partner in enumerate(piece_partners(view, other)) if partner >= 0]
    if all(view.tokens.special[at] for at in shared):
        cause = "the two have no word in common"
        raise Unsupported(
            cause, remedy="two texts that share words, or two models with one text", code="not-comparable"
        )


def piece_partners(view: AttentionView, other: AttentionView) -> list[int]:
    """The number of each token in the other text, -1 if it is not there."""
    return _partners(_piece_keys(view), _piece_keys(other))


def word_partners(view: AttentionView, other: AttentionView) -> list[int]:
    return _partners(_word_keys(view), _word_keys(other))


def _piece_keys(view: AttentionView) -> list[Hashable]:
    tokens = view.tokens
    return [(text, piece.casefold()) for text, piece in zip(tokens.texts, tokens.pieces, strict=True)]


def _word_keys(view: AttentionView) -> list[Hashable]:
    units, pieces = view.units, view.tokens.pieces
    return [
        pieces[start] if text == SPECIAL else (text, word)
        for start, text, word in zip(units.starts.tolist(), units.texts.tolist(), units.words, strict=True)
    ]


def _partners(keys: Sequence[Hashable], other_keys: Sequence[Hashable]) -> list[int]:
    """In the order of both texts: what was moved has no partner."""
    partners = [-1] * len(keys)
    for block in SequenceMatcher(None, keys, other_keys, autojunk=False).get_matching_blocks():
        partners[block.a : block.a + block.size] = range(block.b, block.b + block.size)
    return partners
