"""What the heads of a model are worth, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bertworks.cli.show import say, show_table

if TYPE_CHECKING:
    from bertworks.inspect.ablation import Ablation


def print_ablation(ablation: Ablation) -> None:
    title = ablation.measure
    heads = ablation.heads
    if isinstance(heads, str):
        say(f"importance: {heads}")
    else:
        changes = [
            (float(heads.change[layer, head]), layer, head, verdict)
            for layer, row in enumerate(heads.verdicts)
            for head, verdict in enumerate(row)
            if verdict
        ]
        words = {"worse": "more", "better": "less"} if ablation.is_distance else {"worse": "worse", "better": "better"}
        rows = [
            (
                f"L{layer}H{head}",
                f"{change:+.4f}",
                _interval(heads.low[layer, head], heads.high[layer, head]),
                words[verdict],
            )
            for change, layer, head, verdict in sorted(changes, key=lambda row: -abs(row[0]))
        ]
        show_table(("without", title, "95 %, all together", ""), rows)
        text = f"{ablation.n_sequences} other passages, of {ablation.n_documents} documents"
        against = "more or less than the average head" if ablation.is_distance else "at all"
        say(f"{len(rows)} of {heads.change.size} heads change the {title} {against}, over {text}")
    check = ablation.same_word
    if isinstance(check, str):
        say(f"same-word check: {check}")
        return
    names = " ".join(f"L{layer}H{head}" for layer, head in check.heads)
    mean, *bounds = check.difference
    than_others, *bounds_of_others = check.against_others
    say(f"without {names}, words that recur lose {check.change[0]:+.3f}, matched words {check.change[1]:+.3f}")
    say(f"  that is {mean:+.3f} more ({_interval(*bounds)})")
    say(f"  and {than_others:+.3f} more than without other heads ({_interval(*bounds_of_others)})")
    say(f"  {'confirmed' if check.is_confirmed else 'not shown'}: {check.n_pairs} pairs, {check.n_types} words")


def _interval(low: float, high: float) -> str:
    return f"{low:+.4f} … {high:+.4f}"
