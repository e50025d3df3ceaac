"""Fill the blanks of a text with a language model's predictions, or continue it with a left-to-right model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bertworks.errors import BadText, TooLong
from bertworks.model.layout import Tokens
from bertworks.model.model import Model
from bertworks.model.weights import as_numpy
from bertworks.text.cached_encoder import HAN
from bertworks.text.tokenizer import Pieces, Tokenizer

MAX_NEW_TOKENS = 20  # that a left-to-right model appends to a text


@dataclass(frozen=True)
class Candidate:
    """A predicted token for a blank."""

    piece: str
    id: int
    probability: float


@dataclass(frozen=True)
class Filled:
    """The predictions for the blanks (mask tokens) of a text.

    BERT predicts every blank as if the others were still masked: `blanks` and `independent`. Filling the blank with the
    highest probability first and predicting the others again with it in place gives `joint`, whose tokens depend on
    each other.
    """

    blanks: list[list[Candidate]]  # for each blank, best first
    independent: str  # the text, each blank filled on its own
    joint: str  # the text, filled one blank at a time
    joint_pieces: list[Candidate]


class Filler:
    """Fills or continues texts with a model that has a language-model head. `limit`: its maximum length in tokens."""

    def __init__(self, model: Model, tokenizer: Tokenizer, limit: int) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.limit = limit

    def fill(self, text: str, pieces: Pieces, top_k: int) -> Filled:
        """Predict the masked tokens of a text, independently and jointly. `pieces`: its tokens."""
        ids = list(pieces.ids)
        mask_id = self.tokenizer.id_of("mask")
        blanks = [position for position, id in enumerate(ids) if id == mask_id]
        if not blanks:
            remedy = f"write {self.tokenizer.special['mask']} where a token is to be predicted"
            raise BadText("the text has no blank", remedy=remedy, code="no-blank")
        rows = self._predict(pieces, ids, blanks)
        candidates = [self._candidates(row, top_k) for row in rows]
        independent_ids = list(ids)
        for position, best_first in zip(blanks, candidates, strict=True):
            independent_ids[position] = best_first[0].id
        chosen: dict[int, Candidate] = {}
        open_blanks = list(blanks)
        while open_blanks:
            best = [self._candidates(row, 1)[0] for row in rows]
            most_likely = max(range(len(best)), key=lambda i: best[i].probability)
            position = open_blanks.pop(most_likely)
            chosen[position] = best[most_likely]
            ids[position] = best[most_likely].id
            if open_blanks:
                rows = self._predict(pieces, ids, open_blanks)
        return Filled(
            candidates,
            self._filled_text(text, pieces, independent_ids, blanks),
            self._filled_text(text, pieces, ids, blanks),
            [chosen[position] for position in blanks],
        )

    def continue_text(self, text: str, top_k: int) -> Filled:
        """Greedy decoding: append the most likely token, up to `MAX_NEW_TOKENS` times."""
        ids = self.tokenizer.encode([text])[0].tolist()
        prefix_ids = self.tokenizer.template.parts[0][0].tolist()
        if not prefix_ids and not ids:
            raise BadText("no text to continue", remedy="a left-to-right model continues the text that you give it")
        candidates: list[list[Candidate]] = []
        while len(candidates) < MAX_NEW_TOKENS and len(prefix_ids) + len(ids) < self.limit:
            tokens = self._tokens([*prefix_ids, *ids], [0] * (len(prefix_ids) + len(ids)))
            with torch.inference_mode():
                last_state = self.model.encoder(tokens).last[-1:]
                probabilities = torch.from_numpy(as_numpy(self.model.read("lm", last_state).softmax(-1)))[0]
            candidates.append(self._candidates(probabilities, top_k))
            ids.append(candidates[-1][0].id)
        if not candidates:
            cause = f"{len(ids)} tokens, the model takes at most {self.limit}: no room for another"
            raise TooLong(cause, remedy="shorten the text", code="no-room")
        continued_text = self._continued_text(text, ids, len(candidates))
        return Filled(candidates, continued_text, continued_text, [best_first[0] for best_first in candidates])

    def _predict(self, pieces: Pieces, ids: list[int], blanks: list[int]) -> Tensor:
        """(blanks, vocabulary) probabilities."""
        tokens = self._tokens(ids, pieces.segments)
        positions = torch.tensor(blanks, device=tokens.ids.device)
        with torch.inference_mode():
            if self.model.config.encoder.has_two_streams:
                ranks = torch.full_like(tokens.ids, -1).index_fill(0, positions, 0)
                states = self.model.encoder.two_stream(tokens, ranks, positions, [len(blanks)])
            else:
                states = self.model.encoder(tokens).last.index_select(0, positions)
            return torch.from_numpy(as_numpy(self.model.read("lm", states).softmax(-1)))

    def _tokens(self, ids: Sequence[int], segments: Sequence[int]) -> Tokens:
        return Tokens.single(ids, segments, self.model.encoder.device)

    def _candidates(self, probabilities: Tensor, top_k: int) -> list[Candidate]:
        best = probabilities.topk(min(top_k, len(probabilities)))
        pieces = [self.tokenizer.piece(id) or f"<{id}>" for id in best.indices.tolist()]
        return [Candidate(*fields) for fields in zip(pieces, best.indices.tolist(), best.values.tolist(), strict=True)]

    def _filled_text(self, text: str, pieces: Pieces, ids: list[int], blanks: list[int]) -> str:
        """The text with a token in place of each blank. Where decoding would change the spaces, the tokens are put
        into the text as it was written."""
        if not self.tokenizer.spaces_all_words:
            originals = zip(ids, pieces.special, pieces.ids, strict=True)
            return self.tokenizer.decode([id for id, special, original in originals if not special or id != original])
        filled = ""
        end = 0
        for position in blanks:
            start, stop = pieces.offsets[position]
            filled = self._append(_joined(filled, text[end:start]), ids[max(0, position - 1) : position], ids[position])
            end = stop
        return _joined(filled, text[end:])

    def _continued_text(self, text: str, ids: list[int], n_new: int) -> str:
        if not self.tokenizer.spaces_all_words:
            return self.tokenizer.decode(ids)
        for position in range(len(ids) - n_new, len(ids)):
            text = self._append(text, ids[max(0, position - 1) : position], ids[position])
        return text

    def _append(self, text: str, left: list[int], id: int) -> str:
        """A token after a text that ends with the token `left`, if it has any."""
        token = self.tokenizer.decode([*left, id])[len(self.tokenizer.decode(left)) :]
        if not token.startswith(" "):  # ##ing, or a full stop: it belongs to what is left of it
            return text.rstrip() + token
        return _joined(text, token[1:])


def _joined(left: str, right: str) -> str:
    """With a space between two words that have none, but not beside a Chinese character."""
    return f"{left} {right}" if _is_in_spaced_word(left[-1:]) and _is_in_spaced_word(right[:1]) else left + right


def _is_in_spaced_word(character: str) -> bool:
    return character.isalnum() and HAN.match(character) is None
