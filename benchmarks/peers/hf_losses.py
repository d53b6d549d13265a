"""Computes the losses of Hugging Face's model on the batches of benchmarks/losses.py, without dropout.

    python benchmarks/peers/hf_losses.py MODEL_DIR LOSSES.npz

The optimizer updates the weights in the same way as the published optimization.py.
"""

import sys

import numpy as np
import torch
from transformers import BertForSequenceClassification


class PublishedAdam:
    """Adam without bias correction, with decoupled weight decay, as in the published optimization.py."""

    def __init__(self, model):
        self.parameters = [parameter for _, parameter in model.named_parameters()]
        groups = [{"params": [parameter for name, parameter in model.named_parameters()
                              if ("LayerNorm" in name or "bias" in name) == excluded],
                   "weight_decay": 0.0 if excluded else 0.01} for excluded in (False, True)]
        self.optimizer = torch.optim.AdamW(groups, eps=1e-6, fused=True)
        for parameter in self.parameters:
            # PyTorch's AdamW corrects the bias of its averages. After 1,000,000 steps, the correction is a
            # factor of 1. So the optimizer starts with this number of steps, and corrects nothing.
            self.optimizer.state[parameter] = {"step": torch.tensor(1e6),
                                               "exp_avg": torch.zeros_like(parameter),
                                               "exp_avg_sq": torch.zeros_like(parameter)}
        # In the published code, the gradient of the word embeddings has one row for each token of the batch,
        # and the norm is computed from these rows. In PyTorch, the gradient has one row for each word of the
        # vocabulary. So a hook gets the rows of the tokens.
        self.words = model.bert.embeddings.word_embeddings
        self.words.register_full_backward_hook(self._keep_token_gradients)

    def _keep_token_gradients(self, module, grad_input, grad_output):
        self.words_squared = (grad_output[0]**2).sum()

    @torch.no_grad()
    def step(self, rate):
        """Clips the gradients to a global norm of 1, then updates."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norms = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients
                             if gradient is not self.words.weight.grad])
        norm = torch.sqrt(self.words_squared + (norms**2).sum())
        torch._foreach_mul_(gradients, min(1.0, 1.0 / float(norm)))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad()


def main():
    """Trains on the batches in LOSSES.npz, and prints the largest difference between the new losses and the
    losses in this file."""
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
    print(f"{len(losses)} losses, from {losses[0]:.5f} to {losses[-1]:.5f}; largest difference "
          f"{difference.max():.2e} at step {difference.argmax()}")


if __name__ == "__main__":
    main()
