"""What a pre-training predicts: masked tokens and the next sentence. And how a pre-trained model answers."""

from bertlib.data import example_encoding
from bertlib.tasks import answers
from bertlib.tasks.target import Target

_MASK = "[MASK]"
_NUM_WORDS = 5  # number of words in an answer, for each [MASK]


class MaskedTokens(Target):
    """The target of pre-training."""

    name = title = "pre-training"
    usual_answers, is_pretraining = "masked_words", True
    variables = ("cls/predictions/output_bias", "cls/seq_relationship/output_weights")
    commands = ("run_pretraining",)
    known_metrics = *(f"{head}_{name}" for head in ("masked_lm", "next_sentence")
                      for name in ("accuracy", "baseline", "loss")), "loss"
    fractions = "(masked_lm|next_sentence)_(accuracy|baseline)"

    def create_head(self):
        from bertlib.tasks.pretraining import pretraining_head
        return pretraining_head.PretrainingHead()


class MaskedWords(answers.Answers):
    """Answers with the five most likely tokens for each [MASK] of a text, in this form:
    {"masks": [[{"token", "probability"}, …], …]}."""

    fields, extra_inputs = ("text",), ("masked_lm_positions",)
    sample = {"text": "The cat sees a [MASK]."}

    @property
    def head(self):
        from bertlib.tasks.pretraining import pretraining_head
        return pretraining_head.MaskedWordsHead(_NUM_WORDS, self.model.tokenizer.inv_vocab)

    def preprocess(self, text):
        parts, tokenizer = answers.require_text("text", text).split(_MASK), self.limited_tokenizer
        tokens, length = ["[CLS]"], self.model.max_seq_length
        for index, part in enumerate(parts):
            tokens += [_MASK] if index else []
            tokens += tokenizer.tokenize(part)
        self.count_truncated(len(tokens) + 1)
        tokens = [*tokens[:length - 1], "[SEP]"]
        positions = [place for place, token in enumerate(tokens) if token == _MASK]
        if len(positions) < len(parts) - 1 or len(parts) == 1:
            raise ValueError(f"text has no {_MASK}." if len(parts) == 1 else
                             f"text has a {_MASK} beyond the {length} tokens that the model reads.")
        ids = list(tokenizer.convert_tokens_to_ids(tokens))
        return [{**example_encoding.model_inputs(ids), "masked_lm_positions": positions}], len(positions)

    def postprocess(self, outputs, details):
        num_masks = details
        ids, probabilities = (outputs[0][name][:num_masks] for name in ("ids", "probabilities"))
        return {"masks": [[{"token": token, "probability": answers.finite_number(probability)}
                           for token, probability in zip(
                               self.model.tokenizer.convert_ids_to_tokens(row.tolist()), values)]
                          for row, values in zip(ids, probabilities)]}
