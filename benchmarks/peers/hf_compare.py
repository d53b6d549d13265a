"""Does the work of benchmarks/compare.py with Hugging Face's model, in the way that is fastest in PyTorch.

    python benchmarks/peers/hf_compare.py SETTINGS          (JSON; see compare.py)

Fine-tuning prints its accuracy and F1 as JSON.
"""

import contextlib
import csv
import json
import random
import sys

import numpy as np
from stopwatch import measure
import torch
import transformers


def read(path):
    """Returns the rows of a GLUE file of MRPC, without its header: [(first sentence, second sentence,
    label)]."""
    with open(path, encoding="utf-8-sig", newline="") as lines:
        rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    return [(row[3], row[4], int(row[0])) for row in rows]


def tokenizer(path):
    """Returns the tokenizer of a vocabulary. transformers 4 and 5 need different arguments for it."""
    with open(path, encoding="utf-8") as lines:
        size = len(lines.readlines())
    # transformers 5 ignores `vocab_file`, the name of this argument in transformers 4
    found = transformers.BertTokenizerFast(vocab=path, do_lower_case=True)
    if len(found) != size:
        raise ValueError(f"{path} has {size} entries, but the tokenizer knows {len(found)}: "
                         "transformers 5 is needed.")
    return found


def batches(settings, rows):
    """Yields (arguments of the model, labels) for each batch. All pairs of a batch are padded to the length
    of the longest pair."""
    size = settings["batch_size"]
    for first in range(0, len(rows), size):
        some = rows[first:first + size]
        yield (settings["tokenizer"]([row[0] for row in some], [row[1] for row in some], truncation=True,
                                     max_length=settings["length"], padding=True, return_tensors="pt"),
               torch.tensor([row[2] for row in some]))


def sorted_by_length(settings, rows):
    """Sorts examples by length, the longest first.

    In this order, batches have the least padding. If the memory is enough for the first batch, it is enough
    for all batches.
    """
    encoded = settings["tokenizer"]([row[0] for row in rows], [row[1] for row in rows])["input_ids"]
    return [rows[index] for index in sorted(range(len(rows)), key=lambda index: -len(encoded[index]))]


def random_model(settings):
    """Returns a model with random weights and the configuration in the settings."""
    config = transformers.BertConfig(**settings["config"], num_labels=2,
                                     attn_implementation=settings["attention"])
    return transformers.BertForSequenceClassification(config)


def autocast(settings):
    """Returns the context manager in which the model runs at the precision in the settings."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(settings["precision"])
    return torch.autocast(settings.get("device", "cpu"), dtype) if dtype else contextlib.nullcontext()


class Trainer:
    """Takes training steps as BERT's authors do: AdamW, linear warm-up and decay, clipping at norm 1."""

    def __init__(self, settings, model, total_steps):
        self.settings, self.model = settings, model.train()
        self.forward = torch.compile(model) if settings.get("compile") else model
        decayed = [value for name, value in model.named_parameters() if "bias" not in name
                   and "LayerNorm" not in name]
        others = [value for name, value in model.named_parameters() if "bias" in name or "LayerNorm" in name]
        groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=5e-5, eps=1e-6, fused=True)
        self.scaler = torch.amp.GradScaler(settings.get("device", "cpu"),
                                           enabled=settings["precision"] == "fp16")
        warm_up = int(total_steps * 0.1)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: step / warm_up if step < warm_up
            else max(0.0, 1 - step / total_steps))

    def step(self, arguments, labels):
        """Takes a training step on a batch, and returns the loss."""
        with autocast(self.settings):
            loss = self.forward(**arguments, labels=labels).loss
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()
        self.optimizer.zero_grad()
        return loss.item()


def step(settings):
    """Measures training steps of a classifier on one random batch without padding. The steps run on the CPU,
    or on the device in `settings`."""
    shape, device = (settings["batch_size"], settings["length"]), settings.get("device", "cpu")
    torch.backends.cuda.matmul.allow_tf32 = settings.get("tf32", False)
    trainer = Trainer(settings, random_model(settings).to(device), 1000)
    arguments = {"input_ids": torch.randint(0, settings["config"]["vocab_size"], shape, device=device),
                 "attention_mask": torch.ones(shape, dtype=torch.int64, device=device),
                 "token_type_ids": torch.zeros(shape, dtype=torch.int64, device=device)}
    labels = torch.randint(0, 2, shape[:1], device=device)
    measure(lambda: trainer.step(arguments, labels), settings["warm_up"], settings["count"])


def finetune(settings):
    """Fine-tunes on MRPC. The setting "count" is the number of steps. If the setting "dev" names a file,
    evaluates on this file, and prints accuracy and F1."""
    random.seed(settings["seed"])
    model = transformers.BertForSequenceClassification.from_pretrained(
        settings["model"], num_labels=2, attn_implementation=settings["attention"])
    rows = read(settings["train"])
    trainer = Trainer(settings, model, settings["total_steps"])
    order = []
    for _ in range(settings["count"]):
        if len(order) < settings["batch_size"]:
            order = random.sample(rows, len(rows))
        some, order = order[:settings["batch_size"]], order[settings["batch_size"]:]
        trainer.step(*next(batches(settings, some)))
    if settings["dev"]:
        dev = sorted_by_length(settings, read(settings["dev"]))
        predicted = infer(settings, model, dev).argmax(axis=1)
        labels = np.array([row[2] for row in dev])
        hits = (predicted & labels).sum()
        print(json.dumps({"accuracy": (predicted == labels).mean(),
                          "F1": 2 * hits / (predicted.sum() + labels.sum())}))


@torch.inference_mode()
def infer(settings, model, rows):
    """Returns the probabilities, float [rows, 2]."""
    model.eval()
    if settings.get("compile"):
        model = torch.compile(model, dynamic=True)
    with autocast(settings):
        found = [model(**arguments).logits.float().softmax(-1) for arguments, _ in batches(settings, rows)]
    return torch.cat(found).numpy()


def evaluate(settings):
    """Reads pairs of texts from a file, and computes the probabilities of the two classes for each pair. The
    weights of the model are random."""
    model = random_model(settings)
    if settings["precision"] == "bf16 weights":
        model = model.to(torch.bfloat16)
    infer(settings, model, sorted_by_length(settings, read(settings["dev"])))


def matmul(settings):
    """Measures the multiplication of two square matrices."""
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[settings["precision"]]
    left, right = torch.ones([2, settings["width"], settings["width"]], dtype=dtype)
    measure(lambda: torch.matmul(left, right), settings["warm_up"], settings["count"])


def main():
    """Reads the settings from the command line. Then runs the work that they name, such as "step"."""
    settings = json.loads(sys.argv[1])
    transformers.logging.set_verbosity_error()
    torch.manual_seed(settings.get("seed", 0))
    if "vocab" in settings:
        settings["tokenizer"] = tokenizer(settings["vocab"])
    works = {"step": step, "finetune": finetune, "evaluate": evaluate, "predict": evaluate, "matmul": matmul}
    works[settings["work"]](settings)


if __name__ == "__main__":
    main()
