#!/usr/bin/env python3
"""One training setup of PyTorch on a GPU: Transformers' model, weights and states of one type, fused AdamW, torch.compile.

    python3 bench/gpu_torch.py MODEL BATCH SEQUENCE [--dtype bf16|float32] [--eager | --or-eager] [--steps 10]

MODEL is a built-in name of Tutti: gpt2, llama-1b, qwen2.5-0.5b, qwen2.5-1.5b; or a folder with a config.json. --or-eager:
eager where torch.compile fails. Prints one JSON line: tokens/s as the median of the timed steps, peak memory allocated by
tensors, and what the whole process holds of the device; where memory does not do, it says so and ends with status 1.
"""
import argparse
import json
import os
import statistics
import sys
import time

import torch
import transformers


def make_model(name):
    common = dict(use_cache=False, attn_implementation="sdpa")
    if os.path.isdir(name):
        config = transformers.AutoConfig.from_pretrained(name)
        is_causal = any(each.endswith("CausalLM") or each.endswith("LMHeadModel") for each in config.architectures)
        made = transformers.AutoModelForCausalLM if is_causal else transformers.AutoModelForMaskedLM
        return made.from_config(config, attn_implementation="sdpa")
    if name == "gpt2":
        config = transformers.GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **common)
        return transformers.GPT2LMHeadModel(config)
    if name == "llama-1b":
        config = transformers.LlamaConfig(vocab_size=32000, hidden_size=2048, intermediate_size=5632,
                                          num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4,
                                          max_position_embeddings=2048, rms_norm_eps=1e-5, **common)
        return transformers.LlamaForCausalLM(config)
    hidden, intermediate, layers, heads = {"qwen2.5-0.5b": (896, 4864, 24, 14), "qwen2.5-1.5b": (1536, 8960, 28, 12)}[name]
    config = transformers.Qwen2Config(vocab_size=151936, hidden_size=hidden, intermediate_size=intermediate,
                                      num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=2,
                                      max_position_embeddings=32768, rope_theta=1e6, tie_word_embeddings=True, **common)
    return transformers.Qwen2ForCausalLM(config)


def time_steps(chosen, compiled):
    torch.manual_seed(0)
    dtype = {"bf16": torch.bfloat16, "float32": torch.float32}[chosen.dtype]
    with torch.device("cuda"):
        model = make_model(chosen.model).to(dtype).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    run = torch.compile(model) if compiled else model
    ids = torch.randint(0, model.config.vocab_size, (chosen.batch, chosen.sequence), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        run(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()

    for _ in range(4):
        step()
    seconds = []
    for _ in range(chosen.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    free, total = torch.cuda.mem_get_info()
    return {
        "program": "PyTorch " + torch.__version__ + (" torch.compile" if compiled else " eager"),
        "model": chosen.model, "batch": chosen.batch, "sequence": chosen.sequence,
        "tokens_per_second": round(chosen.batch * chosen.sequence / statistics.median(seconds)),
        "step_ms": round(1e3 * statistics.median(seconds), 2),
        "tensors_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
        "device_gib": round((total - free) / 2**30, 2)}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("model")
    options.add_argument("batch", type=int)
    options.add_argument("sequence", type=int)
    options.add_argument("--dtype", choices=["bf16", "float32"], default="bf16")
    options.add_argument("--eager", action="store_true")
    options.add_argument("--or-eager", action="store_true")
    options.add_argument("--steps", type=int, default=10)
    chosen = options.parse_args()
    try:
        line = time_steps(chosen, not chosen.eager)
    except torch.cuda.OutOfMemoryError:
        sys.exit("out of memory")
    except Exception as failure:  # of the compiler, which has many kinds
        if chosen.eager or not chosen.or_eager:
            raise
        print(f"torch.compile failed, eager it is: {str(failure)[:300]}", file=sys.stderr, flush=True)
        os.execv(sys.executable, [sys.executable, *sys.argv, "--eager"])  # in a process that has nothing of it
    print(json.dumps(line))


if __name__ == "__main__":
    main()
