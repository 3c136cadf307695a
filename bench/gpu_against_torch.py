#!/usr/bin/env python3
"""Tutti beside PyTorch with torch.compile, in one run on the same GPU.

    python3 bench/gpu_against_torch.py [CASE...] [--tutti build/tutti] [--without-torch] [--steps 25]

Every case is run by PyTorch (bf16 weights and states), by Tutti with the same states (--master bf16 --moments bf16) and
by Tutti with its default, float32 master weights and moments. Random tokens, the same number of them. Prints every
program's JSON line, then a table of ratios.
"""
import argparse
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# name: model, global batch, micro-batch, sequence, vocabulary, whether PyTorch runs it too
CASES = {
    "gpt2": ("gpt2", 64, 64, 1024, 50257, True),
    "llama-1b": ("llama-1b", 8, 8, 2048, 32000, True),
    "qwen2.5-0.5b": ("qwen2.5-0.5b", 16, 16, 1024, 151936, True),
    "qwen2.5-1.5b": ("qwen2.5-1.5b", 16, 16, 1024, 151936, True),
    "qwen2.5-0.5b-accumulated": ("qwen2.5-0.5b", 32, 16, 1024, 151936, False),
    "qwen2.5-1.5b-accumulated": ("qwen2.5-1.5b", 32, 16, 1024, 151936, False),
}
STATES = {"bf16 states": ["--master", "bf16", "--moments", "bf16"], "float32 states": []}


def write_tokens(path, steps, batch, sequence, vocabulary):
    """A safetensors file of random ids; targets are the ids themselves, as in the other program."""
    draw = random.Random(0)
    count = steps * batch * sequence
    ids = struct.pack(f"<{count}q", *(draw.randrange(vocabulary) for _ in range(count)))
    shape = [steps, batch, sequence]
    header = json.dumps({
        "input_ids": {"dtype": "I64", "shape": shape, "data_offsets": [0, len(ids)]},
        "targets": {"dtype": "I64", "shape": shape, "data_offsets": [len(ids), 2 * len(ids)]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + ids + ids)


def last_json(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def run_torch(case):
    model, _, micro_batch, sequence, _, _ = CASES[case]
    line = last_json([sys.executable, os.path.join(HERE, "gpu_torch.py"), model, str(micro_batch), str(sequence)])
    print(json.dumps(line), flush=True)
    return line


def run_tutti(tutti, case, states, steps, folder):
    model, batch, micro_batch, sequence, vocabulary, _ = CASES[case]
    tokens, metrics = os.path.join(folder, f"{case}.safetensors"), os.path.join(folder, "metrics.jsonl")
    if not os.path.exists(tokens):
        write_tokens(tokens, 4, batch, sequence, vocabulary)
    if os.path.exists(metrics):
        os.remove(metrics)
    result = last_json([tutti, "train", model, "--device", "cuda", "--dtype", "bf16", "--data", tokens, "--steps",
                        str(steps), "--micro-batch", str(micro_batch), "--lr", "1e-4", "--metrics", metrics,
                        "--json", *STATES[states]])["result"]
    with open(metrics) as lines:
        speeds = [json.loads(line)["tokens_per_second"] for line in lines][5:]
    line = {"program": "Tutti, " + states, "model": model, "batch": batch, "micro_batch": micro_batch,
            "sequence": sequence, "tokens_per_second": round(statistics.median(speeds)),
            "step_ms": round(1e3 * batch * sequence / statistics.median(speeds), 2),
            "device_gib": round(result["device_memory_bytes"] / 2**30, 2), "last_loss": result["last_loss"]}
    print(json.dumps(line), flush=True)
    return line


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("cases", nargs="*", choices=[[], *CASES])
    options.add_argument("--tutti", default=os.path.join(HERE, "..", "build", "tutti"))
    options.add_argument("--without-torch", action="store_true")
    options.add_argument("--steps", type=int, default=25)
    chosen = options.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for case in chosen.cases or CASES:
            theirs = run_torch(case) if CASES[case][5] and not chosen.without_torch else None
            for states in STATES:
                ours = run_tutti(chosen.tutti, case, states, chosen.steps, folder)
                rows.append((case, states, ours, theirs))
    print(f"{'case':26} {'states':15} {'Tutti':>9} {'PyTorch':>9} {'ratio':>6} {'memory, GiB':>14}")
    for case, states, ours, theirs in rows:
        ratio = f"{ours['tokens_per_second'] / theirs['tokens_per_second']:.2f}" if theirs else "-"
        print(f"{case:26} {states:15} {ours['tokens_per_second']:9} {theirs['tokens_per_second'] if theirs else '-':>9} "
              f"{ratio:>6} {ours['device_gib']:6} / {theirs['device_gib'] if theirs else '-':>5}")


if __name__ == "__main__":
    main()
