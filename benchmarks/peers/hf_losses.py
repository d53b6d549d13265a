"""Peer: Hugging Face's model on the batches of benchmarks/losses.py, under the published optimizer, at dropout 0.

    python benchmarks/peers/hf_losses.py MODEL_DIR LOSSES.npz
"""

import sys

import numpy as np
import torch
from transformers import BertForSequenceClassification


class PublishedAdam:
    """Adam without bias correction, with decoupled weight decay, as google-research/bert's optimization.py has it."""

    def __init__(self, model):
        self.state = [(name, parameter, torch.zeros_like(parameter), torch.zeros_like(parameter))
                      for name, parameter in model.named_parameters()]
        # The published norm counts the word embeddings' gradient token by token, before rows of one word are summed.
        self.words = model.bert.embeddings.word_embeddings
        self.words.register_full_backward_hook(self._keep_token_gradients)

    def _keep_token_gradients(self, module, grad_input, grad_output):
        self.words_squared = (grad_output[0]**2).sum()

    @torch.no_grad()
    def step(self, rate):
        """Clips the gradients to a global norm of 1, then updates."""
        norm = torch.sqrt(self.words_squared + sum(
            (parameter.grad**2).sum() for _, parameter, _, _ in self.state
            if parameter.grad is not None and parameter is not self.words.weight))
        scale = min(1.0, 1.0 / float(norm))
        for name, parameter, m, v in self.state:
            if parameter.grad is None:
                continue
            gradient = parameter.grad * scale
            m.mul_(0.9).add_(gradient, alpha=0.1)
            v.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            update = m / (v.sqrt() + 1e-6)
            if "LayerNorm" not in name and "bias" not in name:
                update += 0.01 * parameter
            parameter.sub_(rate * update)
            parameter.grad = None


def main():
    """Prints the largest difference of the losses."""
    recorded = np.load(sys.argv[2])
    model = BertForSequenceClassification.from_pretrained(
        sys.argv[1], num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    with torch.no_grad():
        model.classifier.weight.copy_(torch.tensor(recorded["output_weights"]))
        model.classifier.bias.zero_()
    model.train()
    optimizer = PublishedAdam(model)
    total, top = int(recorded["total_steps"]), float(recorded["learning_rate"])
    warm_up = total // 10
    losses = []
    for step in range(len(recorded["losses"])):
        batch = {name: torch.tensor(recorded[name][step].astype(np.int64))
                 for name in ("input_ids", "input_mask", "segment_ids", "label_id")}
        loss = model(input_ids=batch["input_ids"], attention_mask=batch["input_mask"],
                     token_type_ids=batch["segment_ids"], labels=batch["label_id"]).loss
        loss.backward()
        optimizer.step(top * (step / warm_up if step < warm_up else 1 - step / total))
        losses.append(float(loss))
    difference = np.abs(np.array(losses) - recorded["losses"])
    print(f"{len(losses)} losses, from {losses[0]:.5f} to {losses[-1]:.5f}; largest difference {difference.max():.2e} "
          f"at step {difference.argmax()}")


if __name__ == "__main__":
    main()
