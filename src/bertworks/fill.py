"""What a language model puts into the blanks of a text, or where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bertworks.errors import BadText, TooLong
from bertworks.model.layout import Tokens
from bertworks.model.model import Model
from bertworks.model.weights import as_numpy
from bertworks.text.tokenizer import Pieces, Tokenizer

CONTINUED = 20  # tokens that a left-to-right model adds to a text


@dataclass(frozen=True)
class Candidate:
    """A token for a blank."""

    piece: str
    id: int
    probability: float


@dataclass(frozen=True)
class Filled:
    """What a masked language model puts into the blanks of a text.

    BERT predicts every blank as if the others were still blank: `blanks` and `independent`. Filling the surest blank
    first and looking again with it in place gives `joint`, in which the words know of each other.
    """

    blanks: list[list[Candidate]]  # for each blank, best first
    independent: str
    joint: str
    joint_pieces: list[Candidate]


class Filler:
    """A model with a language-model head, its tokenizer, and how many tokens it takes."""

    def __init__(self, model: Model, tokenizer: Tokenizer, limit: int) -> None:
        self.model, self.tokenizer, self.limit = model, tokenizer, limit

    def fill(self, pieces: Pieces, top_k: int) -> Filled:
        """The blanks of a text."""
        ids, mask = list(pieces.ids), self.tokenizer.id_of("mask")
        blanks = [place for place, id in enumerate(ids) if id == mask]
        if not blanks:
            remedy = f"write {self.tokenizer.special['mask']} where a word is to be found"
            raise BadText("the text has no blank", remedy=remedy, code="no-blank")
        first = self._predict(pieces, ids, blanks)
        candidates = [self._candidates(row, top_k) for row in first]
        independent = list(ids)
        for place, row in zip(blanks, candidates, strict=True):
            independent[place] = row[0].id
        chosen: dict[int, Candidate] = {}
        while len(chosen) < len(blanks):
            open_blanks = [place for place in blanks if place not in chosen]
            best = [self._candidates(row, 1)[0] for row in self._predict(pieces, ids, open_blanks)]
            surest = max(range(len(best)), key=lambda i: best[i].probability)
            chosen[open_blanks[surest]] = best[surest]
            ids[open_blanks[surest]] = best[surest].id
        return Filled(
            candidates,
            self._text_of(independent, pieces),
            self._text_of(ids, pieces),
            [chosen[place] for place in blanks],
        )

    def go_on(self, text: str, top_k: int) -> Filled:
        """What follows, token by token, the likeliest each time."""
        ids = self.tokenizer.encode([text])[0].tolist()
        front = self.tokenizer.template.parts[0][0].tolist()
        if not front and not ids:
            raise BadText("no text to go on from", remedy="a left-to-right model continues what you give it")
        blanks: list[list[Candidate]] = []
        while len(blanks) < CONTINUED and len(front) + len(ids) < self.limit:
            tokens = self._tokens([*front, *ids], [0] * (len(front) + len(ids)))
            with torch.inference_mode():
                last = self.model.encoder(tokens).last[-1:]
                row = torch.from_numpy(as_numpy(self.model.read("lm", last).softmax(-1)))[0]
            blanks.append(self._candidates(row, top_k))
            ids.append(blanks[-1][0].id)
        if not blanks:
            cause = f"{len(ids)} tokens, {self.limit} fit into the model: no room to go on"
            raise TooLong(cause, remedy="shorten the text", code="no-room")
        whole = self.tokenizer.decode(ids)
        return Filled(blanks, whole, whole, [row[0] for row in blanks])

    def _predict(self, pieces: Pieces, ids: list[int], blanks: list[int]) -> Tensor:
        """(blanks, vocabulary) probabilities."""
        tokens = self._tokens(ids, pieces.segments)
        places = torch.tensor(blanks, device=tokens.ids.device)
        with torch.inference_mode():
            if self.model.config.encoder.has_two_streams:
                ranks = torch.full_like(tokens.ids, -1).index_fill(0, places, 0)
                states = self.model.encoder.two_stream(tokens, ranks, places, [len(blanks)])
            else:
                states = self.model.encoder(tokens).last.index_select(0, places)
            return torch.from_numpy(as_numpy(self.model.read("lm", states).softmax(-1)))

    def _tokens(self, ids: Sequence[int], segments: Sequence[int]) -> Tokens:
        return Tokens.one(ids, segments, self.model.encoder.device)

    def _candidates(self, probabilities: Tensor, top_k: int) -> list[Candidate]:
        best = probabilities.topk(min(top_k, len(probabilities)))
        pieces = [self.tokenizer.piece(id) or f"<{id}>" for id in best.indices.tolist()]
        return [Candidate(*row) for row in zip(pieces, best.indices.tolist(), best.values.tolist(), strict=True)]

    def _text_of(self, ids: list[int], pieces: Pieces) -> str:
        return self.tokenizer.decode(
            [id for id, special, old in zip(ids, pieces.special, pieces.ids, strict=True) if not special or id != old]
        )
