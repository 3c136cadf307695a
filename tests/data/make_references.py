"""Makes the reference cases of tests/data with PyTorch and Transformers, the outside truth for numerics.

    python3 make_references.py OUT [CASE ...]

Each case is a Hugging Face model folder of random weights plus `batches.safetensors` (input_ids and targets, int64
[steps, batch, sequence]), `logits0.safetensors`, `grads0.safetensors` (step 0, before clipping) and `reference.json`
(losses and gradient norms of 20 AdamW steps; per parameter, how far step 0's gradient in float32 is from that in
float64: no program that computes in float32 can be held to less). Cases called `*-packed` have several documents in a
sequence, and `documents` in their batches: for each token, where its document begins. Sizes are small and odd on
purpose.
"""
import copy
import json
import os
import sys

import torch
import transformers as tf
from safetensors.torch import save_file

VOCAB, SEQUENCE, BATCH, STEPS = 131, 24, 4, 20
LLAMA = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=92, num_hidden_layers=2, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=64, use_cache=False)
BERT = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=92, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
NEOX = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=92, num_hidden_layers=2, num_attention_heads=3,
            max_position_embeddings=64, use_cache=False)
PHI = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=92, num_hidden_layers=2, num_attention_heads=3,
           max_position_embeddings=64, use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0, attention_dropout=0.0)
OPT = dict(vocab_size=VOCAB, hidden_size=48, ffn_dim=92, num_hidden_layers=2, num_attention_heads=4, dropout=0.0,
           attention_dropout=0.0, max_position_embeddings=64, use_cache=False)
GPT2 = dict(vocab_size=VOCAB, n_positions=64, n_embd=48, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
            attn_pdrop=0.0, use_cache=False, bos_token_id=0, eos_token_id=0)


def rope(kind, **extra):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=10000.0, **extra))


CASES = {
    "mistral": lambda: tf.MistralForCausalLM(tf.MistralConfig(**LLAMA, sliding_window=None)),
    "mistral-window": lambda: tf.MistralForCausalLM(tf.MistralConfig(**LLAMA, sliding_window=64, head_dim=16)),
    "mistral-short-window": lambda: tf.MistralForCausalLM(tf.MistralConfig(**LLAMA, sliding_window=7)),
    "qwen3": lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**LLAMA, head_dim=16)),
    "gemma": lambda: tf.GemmaForCausalLM(tf.GemmaConfig(**LLAMA, head_dim=16)),
    "olmo2": lambda: tf.Olmo2ForCausalLM(tf.Olmo2Config(**LLAMA, pad_token_id=1, attention_bias=True)),
    "gpt_neox": lambda: tf.GPTNeoXForCausalLM(tf.GPTNeoXConfig(**NEOX)),
    "gpt_neox-sequential": lambda: tf.GPTNeoXForCausalLM(
        tf.GPTNeoXConfig(**NEOX, use_parallel_residual=False, attention_bias=False, tie_word_embeddings=True,
                         hidden_act="gelu_new", rope_parameters=dict(rope_type="default", rope_theta=500.0,
                                                                     partial_rotary_factor=0.5))),
    "phi": lambda: tf.PhiForCausalLM(tf.PhiConfig(**PHI)),
    "phi-qk": lambda: tf.PhiForCausalLM(tf.PhiConfig(**PHI, qk_layernorm=True, num_key_value_heads=1)),
    "opt": lambda: tf.OPTForCausalLM(tf.OPTConfig(**OPT, word_embed_proj_dim=48)),
    "opt-post": lambda: tf.OPTForCausalLM(
        tf.OPTConfig(**OPT, word_embed_proj_dim=32, do_layer_norm_before=False, enable_bias=False)),
    "opt-plain": lambda: tf.OPTForCausalLM(
        tf.OPTConfig(**OPT, word_embed_proj_dim=48, layer_norm_elementwise_affine=False, _remove_final_layer_norm=True,
                     activation_function="gelu", tie_word_embeddings=False)),
    "roberta": lambda: tf.RobertaForMaskedLM(tf.RobertaConfig(**BERT, type_vocab_size=1)),
    "roberta-untied": lambda: tf.RobertaForMaskedLM(
        tf.RobertaConfig(**BERT, type_vocab_size=2, pad_token_id=3, tie_word_embeddings=False, hidden_act="relu")),
    "bert-untied": lambda: tf.BertForMaskedLM(tf.BertConfig(**BERT, tie_word_embeddings=False, hidden_act="gelu_new")),
    "llama3-rope": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(
        **LLAMA, tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
        **rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
               original_max_position_embeddings=32))),
    "llama-linear-rope": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(
        **LLAMA, head_dim=16, hidden_act="gelu", **rope("linear", factor=4.0))),
    "qwen2-yarn": lambda: tf.Qwen2ForCausalLM(tf.Qwen2Config(
        **LLAMA, **rope("yarn", factor=4.0, original_max_position_embeddings=16))),
    "qwen2-windows": lambda: tf.Qwen2ForCausalLM(tf.Qwen2Config(
        **LLAMA, use_sliding_window=True, sliding_window=5, max_window_layers=1)),
    "llama-packed": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**LLAMA)),
    "gpt2-packed": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(**GPT2)),
    "gpt2-variant": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(
        **GPT2, scale_attn_by_inverse_layer_idx=True, n_inner=92, activation_function="relu",
        tie_word_embeddings=False)),
}


def tokens():
    """A learnable source: a noisy affine recurrence, with the special ids 0 to 3 among its values."""
    source = torch.Generator().manual_seed(7)
    ids = torch.empty(STEPS, BATCH, SEQUENCE + 1, dtype=torch.long)
    current = torch.randint(0, VOCAB, (STEPS, BATCH), generator=source)
    for t in range(SEQUENCE + 1):
        ids[:, :, t] = current
        noise = torch.rand((STEPS, BATCH), generator=source) < 0.1
        current = torch.where(noise, torch.randint(0, VOCAB, (STEPS, BATCH), generator=source),
                              (current * 5 + 17) % VOCAB)
    return ids[:, :, :-1].contiguous(), ids[:, :, 1:].contiguous()


def documents_of(targets):
    """Borders drawn at random, none in the last row; no token is asked for the first of the next document."""
    source = torch.Generator().manual_seed(11)
    documents = torch.zeros(targets.shape, dtype=torch.int32)
    for step in range(STEPS):
        for row in range(BATCH - 1):
            for border in sorted(torch.randint(1, SEQUENCE, (3,), generator=source).tolist()):
                documents[step, row, border:] = border
                targets[step, row, border - 1] = -100
    return documents


def logits_of(model, inputs, documents):
    if documents is None:
        return model(input_ids=inputs).logits
    at = torch.arange(SEQUENCE)
    seen = (at[None, :, None] >= at[None, None, :]) & (documents[:, :, None] == documents[:, None, :])
    dtype = next(model.parameters()).dtype
    mask = torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)
    return model(input_ids=inputs, position_ids=at - documents, attention_mask=mask[:, None]).logits


def backward(model, batch):
    inputs, targets, documents = batch
    logits = logits_of(model, inputs, documents)
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))
    loss.backward()
    return loss, logits


def gradients(model):
    return {n: p.grad if p.grad is not None else torch.zeros_like(p) for n, p in model.named_parameters()}


def float32_noise(model, batch):
    narrow, wide = copy.deepcopy(model), copy.deepcopy(model).double()
    backward(narrow, batch)
    backward(wide, batch)
    exact = gradients(wide)
    return {name: float((gradient.double() - exact[name]).norm()) for name, gradient in gradients(narrow).items()}


def make(folder, name):
    torch.manual_seed(1234)
    model = CASES[name]().float().train()
    model.set_attn_implementation("eager")
    with torch.no_grad():  # biases and norm scales away from 0 and 1, so that a dropped one shows
        for parameter in model.parameters():
            if parameter.dim() < 2:
                parameter.add_(torch.randn(parameter.shape) * 0.05)
    os.makedirs(folder, exist_ok=True)
    model.save_pretrained(folder)
    inputs, targets = tokens()
    targets[:, 0, :3] = -100  # ignored tokens count neither in the loss nor in its mean
    documents = documents_of(targets) if name.endswith("-packed") else None
    batches = {"input_ids": inputs, "targets": targets}
    save_file(batches if documents is None else batches | {"documents": documents}, f"{folder}/batches.safetensors")
    groups = [dict(params=[p for p in model.parameters() if p.dim() >= 2], weight_decay=0.1),
              dict(params=[p for p in model.parameters() if p.dim() < 2], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses, norms, noise = [], [], {}
    for step in range(STEPS):
        batch = inputs[step], targets[step], None if documents is None else documents[step]
        if step == 0:
            noise = float32_noise(model, batch)
        optimizer.zero_grad()
        loss, logits = backward(model, batch)
        if step == 0:
            save_file({"logits": logits.detach().contiguous()}, f"{folder}/logits0.safetensors")
            save_file({n: g.contiguous().clone() for n, g in gradients(model).items()},
                      f"{folder}/grads0.safetensors")
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        optimizer.step()
        losses.append(float(loss))
    with open(f"{folder}/reference.json", "w") as out:
        json.dump(dict(arch=name, batch=BATCH, seq=SEQUENCE, steps=STEPS, dtype="float32", loss=losses,
                       grad_norm=norms, float32_noise=noise, torch=torch.__version__,
                       transformers=tf.__version__), out, indent=1)
    print(name, losses[0], losses[-1], flush=True)


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)
    for case in sys.argv[2:] or CASES:
        make(f"{sys.argv[1]}/{case}", case)
