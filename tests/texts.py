"""Strategies of hypothesis for texts that are hard for tokenizers; also for benchmarks/featurization.py."""

import string

from hypothesis import strategies as st

# Each of these texts is a special case for BERT's tokenizer, for Unicode or for Python.
CASES = [
    "the", "unaffable", "Transformer's", "e.g.,", "1,000.50", "##ing", "$^`|",
    "x" * 33, "a" * 100, "un" * 60, "b" * 200, "b" * 201,
    "[MASK]", "[CLS]", "[SEP]", "[UNK]", "[PAD]", "[mask]", "[[MASK]]", "[MASK",
    "ΟΔΟΣ", "σς", "İstanbul", "ﬁn", "ẞ", "ǅ", "RÉSUMÉ", "naïve", "e\u0301\u0301", "\u0301", "n\u0303",
    "\u212b", "ｆｕｌｌ", "①", "Ⅷ", "½", "日本語", "\U0002f801", "のテ", "한국어", "\u1112\u1161\u11ab",
    "हिन्दी", "ไทย", "العربية", "עברית", "\U00020000", "🏳\ufe0f\u200d🌈", "👩🏽\u200d🚀", "𝔘𝔫𝔦",
    "“quoted”", "—", "…", "¿", "؟", "。", "·", "\u037e", "\u1fef",
    "\x00", "\x07", "\x7f", "\x9f", "\xad", "\u200b", "\u200d", "\u202e", "\ufeff", "\ufffd", "\ue000",
    "\U000e0041", "\ud800", "\udc80",
    "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\u2028", "\u2029", "\u180e",
    " ", "  ", "\t", "\n", "\r\n", "\xa0", "\u1680", "\u2003", "\u202f", "\u205f", "\u3000"]

texts = st.lists(
    st.sampled_from(CASES) | st.just(" ") | st.text(string.printable, max_size=8)
    | st.text(st.characters(exclude_categories=()), max_size=6),
    max_size=12).map("".join)
