"""The inference library that the course teaches: one module per chapter, readable top to bottom.

from llm_internals.checkpoint import load
model, tokenizer, config = load("smollm2-135m")
logits = model(torch.tensor(tokenizer.encode("The capital of France is")))
"""
