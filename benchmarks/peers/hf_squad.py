"""Trains Hugging Face's model on the windows of benchmarks/squad.py, in the same order, with the published
optimizer.

    python benchmarks/peers/hf_squad.py MODEL_DIR WINDOWS.npz LOGITS.npz

The script writes the loss of each step. If WINDOWS.npz contains windows of the dev file, it also writes their
logits. The loss in Hugging Face's class is equal to the published loss: in both, the softmax includes
padding.
"""

import sys

from hf_losses import PublishedAdam
import numpy as np
import torch
from transformers import BertForQuestionAnswering

PREDICT_BATCH_SIZE = 8
# As in this project, a batch is trimmed to the length of its longest window, rounded up to a multiple of this
# number.
LENGTH_STEP = 8


def arguments_of(recorded, part, rows):
    """Returns the inputs of the model for the windows whose indices are `rows`. `part` is "train" or "eval".
    """
    names = {"input_ids": "input_ids", "attention_mask": "input_mask", "token_type_ids": "segment_ids"}
    if part == "train":
        names.update(start_positions="start_positions", end_positions="end_positions")
    longest = -(-recorded[f"{part}/input_mask"][rows].sum(axis=1).max() // LENGTH_STEP) * LENGTH_STEP
    arrays = {name: recorded[f"{part}/{ours}"][rows] for name, ours in names.items()}
    return {name: torch.tensor(array[:, :longest] if array.ndim == 2 else array)
            for name, array in arrays.items()}


def precision(recorded):
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=bool(recorded["bf16"]))


def head_in_fp32(model):
    """Prevents autocast from rounding logits and loss to bfloat16: this project computes them in float32."""
    head = model.qa_outputs.forward
    model.qa_outputs.forward = torch.autocast("cpu", enabled=False)(lambda states: head(states.float()))


def train(model, recorded):
    """Trains the model. Returns the losses."""
    model.train()
    optimizer = PublishedAdam(model)
    total, warm_up, top = (recorded[name].item() for name in ("total_steps", "warmup_steps", "learning_rate"))
    losses = []
    for step, rows in enumerate(recorded["order"]):
        with precision(recorded):
            loss = model(**arguments_of(recorded, "train", rows)).loss
        loss.backward()
        optimizer.step(top * (step / warm_up if step < warm_up else 1 - step / total))
        losses.append(loss.item())
    return losses


@torch.no_grad()
def predict(model, recorded):
    """Returns the start logits and the end logits, float32 [windows, length] each.

    The logits of positions in the padding are set to -1e4, so that they are never among the best positions of
    a window. This project trims its batches, so most of its windows have no padding.
    """
    model.eval()
    logits = {name: np.full(recorded["eval/input_ids"].shape, -1e4, np.float32)
              for name in ("start_logits", "end_logits")}
    for first in range(0, len(recorded["eval/input_ids"]), PREDICT_BATCH_SIZE):
        rows = slice(first, first + PREDICT_BATCH_SIZE)
        with precision(recorded):
            output = model(**arguments_of(recorded, "eval", rows))
        for name, array in logits.items():
            values = getattr(output, name).float().numpy()
            real = recorded["eval/input_mask"][rows][:, :values.shape[1]] == 1
            array[rows, :values.shape[1]] = np.where(real, values, -1e4)
    return list(logits.values())


def main():
    """Trains and predicts."""
    model_dir, windows, output = sys.argv[1:]
    with np.load(windows) as file:
        recorded = dict(file)
    torch.set_num_threads(1)  # several threads would use CPU time while they wait for each other
    torch.manual_seed(recorded["seed"].item())
    dropout = {} if recorded["dropout"] else {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = BertForQuestionAnswering.from_pretrained(model_dir, **dropout)
    # The loss also depends on the embedding of [PAD], so this embedding must be trained. With a padding_idx,
    # torch would not train it.
    model.bert.embeddings.word_embeddings.padding_idx = None
    head_in_fp32(model)
    results = {"losses": train(model, recorded)}
    if "eval/input_ids" in recorded:
        results["start_logits"], results["end_logits"] = predict(model, recorded)
    np.savez(output, **results)


if __name__ == "__main__":
    main()
