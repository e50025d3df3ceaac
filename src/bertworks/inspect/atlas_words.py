"""What an atlas says, in English and Chinese. What is not listed is shown as it is."""

from __future__ import annotations

from collections.abc import Mapping

Titles = Mapping[str, tuple[str, str]]

NAME_TITLES: Titles = {
    "next": ("next word", "下一个词"),
    "previous": ("previous word", "上一个词"),
    "next2": ("next but one", "后面第二个词"),
    "previous2": ("previous but one", "前面第二个词"),
    "same": ("same word", "相同的词"),
    "related": ("related word", "相关的词"),
    "across": ("same or related word in the other text", "另一段文本中相同或相关的词"),
    "pieces": ("pieces of one word", "同一个词的词片"),
    "predicts": ("words that predict it", "能预测它的词"),
    "cls": ("rests on [CLS]", "停在 [CLS] 上"),
    "sep": ("rests on [SEP]", "停在 [SEP] 上"),
    "first": ("rests on the first token", "停在首个词元上"),
}
INITIALS = {
    "next": "→",
    "previous": "←",
    "next2": "⇉",
    "previous2": "⇇",
    "same": "=",
    "related": "≈",
    "across": "⇄",
    "pieces": "#",
    "predicts": "?",
    "cls": "C",
    "sep": "S",
    "first": "1",
}
CONDITIONS: Titles = {
    "share": ("share of what goes to words", "占流向词的比例"),
    "mass": ("share of all attention", "占全部注意力的比例"),
    "hit": ("how often it is the strongest", "成为最强者的频率"),
    "times any other offset": ("times any other offset", "为其他距离的倍数"),
    "target": ("on each target", "落在目标上"),
    "decoy": ("on each decoy", "落在诱饵上"),
    "lift": ("target over decoy", "目标与诱饵之比"),
    "difference": ("target less decoy", "目标与诱饵之差"),
    "own text": ("on targets of its own text", "落在本段文本的目标上"),
    "hits above the best offset": ("hits above the best fixed offset", "命中率高出最佳固定距离"),
    "times its own text": ("times what goes there in its own text", "为本段文本中的倍数"),
    "other offset": ("nearest other offset", "最接近的其他距离"),
    "mass there": ("what goes there", "落在该处的比例"),
    "best offset's hit": ("hits of the best fixed offset", "最佳固定距离的命中率"),
    "norm share": ("share by norm", "按范数的比例"),
    "uniform": ("if attention were uniform", "注意力均匀时"),
    "kept when [SEP] moved": ("kept when [SEP] is moved", "移动 [SEP] 后的保留比例"),
    "lift in a foreign text": ("target over decoy, in a foreign text", "换成无关文本后的目标与诱饵之比"),
    "kept when shuffled": ("kept when words are shuffled", "打乱词序后的保留比例"),
    "planted twin": ("times as much to a planted twin", "植入同词后的倍数"),
}
DESCRIPTIONS: Titles = {
    "cls": ("on [CLS]", "在 [CLS] 上"),
    "sep": ("on [SEP]", "在 [SEP] 上"),
    "first": ("on the first token", "在首个词元上"),
    "cls_norm": ("on [CLS], by norm", "在 [CLS] 上（按范数）"),
    "sep_norm": ("on [SEP], by norm", "在 [SEP] 上（按范数）"),
    "first_norm": ("on the first token, by norm", "在首个词元上（按范数）"),
    "self": ("on itself", "在自身上"),
    "punctuation": ("on punctuation", "在标点上"),
    "entropy": ("evenness", "均匀程度"),
    "rarest": ("on the rarest word", "在最罕见的词上"),
    "own_text": ("within its own text", "在本段文本内"),
    "broad": ("broad", "分散"),
    "rarest word": ("the rarest word", "最罕见的词"),
    "own sentence": ("its own text", "本段文本"),
}
NOTES: Titles = {
    "also across": ("also across texts", "也跨越两段文本"),
    "no-op": ("does next to nothing there, by norm", "按范数几乎不起作用"),
}
SOURCES: Titles = {  # what tells which words are in a relation
    "by counting": ("by counting", "由计数得出"),
    "by the model's own vectors": ("by the model's own vectors", "由模型自身的向量得出"),
    "by its query stream": ("by its query stream", "由其查询流得出"),
    "by words taken from the past": ("by words taken from the past", "由移除前文的词得出"),
    "by hiding words": ("by hiding words", "由遮盖词得出"),
    "by its generator": ("by its generator", "由其生成器得出"),
    "by the company they keep": ("by the company they keep", "由词的共现得出"),
}
REASONS: Titles = {
    "not enough text": ("not enough text", "文本不足"),
    "cannot be seen: these are no pairs of texts": (
        "cannot be seen: these are no pairs of texts",
        "无法看到：这些不是句对",
    ),
    "cannot be seen: later words are hidden": ("cannot be seen: later words are hidden", "无法看到：后面的词被遮住"),
    "cannot be seen: from left to right, the first token is named first, whatever it is": (
        "cannot be seen: from left to right, the first token is named first, whatever it is",
        "无法看到：自左向右的模型中，首个词元一律记作 first",
    ),
    "cannot be seen: only from left to right the first token is a place to rest": (
        "cannot be seen: only from left to right the first token is a place to rest",
        "无法看到：只有自左向右的模型才停留在首个词元",
    ),
    "cannot be seen: there is no such token around the texts": (
        "cannot be seen: there is no such token around the texts",
        "无法看到：文本两侧没有这种词元",
    ),
    "cannot be seen: characters of Chinese words need the package rjieba": (
        "cannot be seen: characters of Chinese words need the package rjieba",
        "无法看到：判断汉字属于哪个词需要 rjieba 包",
    ),
    "cannot be seen: no word has several pieces": (
        "cannot be seen: no word has several pieces",
        "无法看到：没有由多个词片组成的词",
    ),
    "cannot be seen: this model predicts words no better than their frequencies do": (
        "cannot be seen: this model predicts words no better than their frequencies do",
        "无法看到：此模型对词的预测不优于词频",
    ),
    "cannot be seen: this model has no language head, and there is not enough text for counting": (
        "cannot be seen: this model has no language head, and there is not enough text for counting",
        "无法看到：此模型没有语言模型头，文本又不足以计数",
    ),
    "no head is named for the same word": ("no head is named for the same word", "没有头以“同一个词”命名"),
    "cannot be measured: the model predicts no words": (
        "cannot be measured: the model predicts no words",
        "无法测量：此模型不预测词",
    ),
    "cannot be measured: too few heads without a name in these layers": (
        "cannot be measured: too few heads without a name in these layers",
        "无法测量：这些层中无名的头太少",
    ),
}
MEASURES: Titles = {
    "masked loss": ("masked loss", "遮盖词损失"),
    "left-to-right loss": ("left-to-right loss", "自左向右损失"),
    "loss of the query stream": ("loss of the query stream", "查询流损失"),
    "loss on replaced tokens": ("loss on replaced tokens", "替换词元损失"),
    "1 - cosine of text vectors": ("1 - cosine of text vectors", "文本向量的 1 - 余弦"),
}
REPLACEMENTS: Titles = {
    "mean": ("its mean over other texts", "其在其他文本上的均值"),
    "zero": ("zero", "零"),
    "uniform": ("what it would be if its attention were uniform", "注意力均匀时的输出"),
}
THRESHOLDS: Titles = {
    "z": ("standard errors below the mean", "低于均值的标准误个数"),
    "min_types": ("word types; fewer: not enough text", "词型数；更少则文本不足"),
    "min_documents": ("documents; fewer: not enough text", "文档数；更少则文本不足"),
    "min_piece_types": ("words of several pieces; fewer: not enough text", "多词片的词数；更少则文本不足"),
    "offset_share": ("of what goes to words, to the word at this offset", "流向词的注意力中，落在该距离的词上的比例"),
    "offset_hit": ("how often that word is the strongest", "该词最强的频率"),
    "offset_ratio": ("times what goes to any other offset", "为其他任一距离的倍数"),
    "strong_mass": ("of all attention: then a name is strong", "占全部注意力的比例：达到则为强"),
    "same_lift": ("on the same word, times that on decoys", "同一个词与诱饵之比"),
    "same_mass": ("of all attention, to the same word", "同一个词占全部注意力的比例"),
    "related_lift": ("on related words, times that on decoys", "相关词与诱饵之比"),
    "related_hit": ("hits above the best fixed offset", "命中率高出最佳固定距离"),
    "across_ratio": ("times what goes to such words in the same text", "为本段文本中这类词的倍数"),
    "pieces_difference": ("more than as far into another word", "多于另一个词中同样距离处"),
    "pieces_lift": ("times as far into another word", "为另一个词中同样距离处的倍数"),
    "predicts_lift": ("on the word that predicts it, times that on decoys", "预测它的词与诱饵之比"),
    "predicts_hit": ("hits above the best fixed offset", "命中率高出最佳固定距离"),
    "predicts_effect": ("what that word tells, nats", "该词所提供的信息（奈特）"),
    "own_hit": ("relations of your own: hits above the best fixed offset", "自定义关系：命中率高出最佳固定距离"),
    "sink_mass": ("of all attention, on one special token", "单个特殊词元占全部注意力的比例"),
    "strong_sink_mass": ("the same, for a strong name", "同上，达到则为强"),
    "no_op": ("of that mass, by norm: less does next to nothing", "按范数占该比例：更少则几乎不起作用"),
    "broad": ("description: evenness", "描述：均匀程度"),
    "self": ("description: on itself", "描述：在自身上"),
    "punctuation": ("description: on punctuation", "描述：在标点上"),
    "rarest": ("description: on the rarest word", "描述：在最罕见的词上"),
    "own_text": ("description: within its own text", "描述：在本段文本内"),
    "kept_share": ("kept after an intervention", "干预后的保留比例"),
    "twin_ratio": ("times as much to a planted twin", "植入同词后的倍数"),
}


def title_of(titles: Titles, name: str, otherwise: str | None = None) -> tuple[str, str]:
    """In both languages; of what is not listed the name itself, or `otherwise`."""
    text = name if otherwise is None else otherwise
    return titles.get(name, (text, text))
