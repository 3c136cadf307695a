#!/usr/bin/env python3
"""Model data beyond a GPU's memory, on one GPU with its host.

    python3 bench/gpu_offload.py [CASE ...] [--tutti build/tutti] [--seconds 330] [--steps 3] [--list]

Cases are run in the order of the list below until the time is used up; a case that would begin later is left out. Of
largest-N, largest-bf16-N and disk-N any number of layers may be asked for. Prints a JSON line per case as soon as it is
done: tokens per second and model TFLOP/s (6 per parameter and token) of the steps after the first, what was predicted to
wait for copies and what the host waited for them, and the error where there was one.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

BF16 = ["--device", "cuda", "--dtype", "bf16", "--data", "builtin", "--clip", "1"]
LLAMA = ["llama2-7b", "--sequence", "2048", "--recompute", "full", *BF16]
GPT = ["--sequence", "1024", "--recompute", "full", *BF16]


def llama(memory, tokens, micro_batch, *more):
    limit = ["--device-memory", memory] if memory else []
    return [*LLAMA, "--global-batch", str(tokens // 2048), "--micro-batch", str(micro_batch), *limit, *more]


def gpt(model, memory, sequences, micro_batch, *more):
    return [model, *GPT, "--global-batch", str(sequences), "--micro-batch", str(micro_batch), "--device-memory", memory, *more]


def deep(layers, *more):
    """PatrickStar's 20B model with so many layers: a micro-batch a step, so that gradients lie over the weights."""
    return [f"deep-{layers}", "--from-scratch", *GPT, "--global-batch", "4", "--micro-batch", "4", "--device-memory", "136GiB",
            "--gradients", "bf16", "--moments", "bf16", *more]


DEEP = {"largest": [], "largest-bf16": ["--master", "bf16"], "disk": ["--host-memory", "116GiB", "--disk", "{folder}"]}

# 60% of 139 GiB is 83 GiB. Micro-batches are the largest that leave chunks some room; --micro overrides them.
CASES = {
    "7b-100%-131k": llama("", 131072, 8),
    "7b-24GiB-131k": llama("24GiB", 131072, 8),
    "7b-60%-131k": llama("83GiB", 131072, 8),
    "10b-f32-states": gpt("patrickstar-10b", "136GiB", 128, 32),
    "20b-bf16-moments": gpt("patrickstar-20b", "136GiB", 64, 4, "--moments", "bf16", "--gradients", "bf16"),
    "7b-32GiB-131k": llama("32GiB", 131072, 8),
    "7b-100%-32k": llama("", 32768, 8),
    "7b-60%-32k": llama("83GiB", 32768, 8),
    "7b-24GiB-32k": llama("24GiB", 32768, 8),
    "7b-32GiB-32k": llama("32GiB", 32768, 8),
    "largest-32": deep(32, *DEEP["largest"]),
    "largest-bf16-39": deep(39, *DEEP["largest-bf16"]),
    "disk-40": deep(40, *DEEP["disk"]),
    "20b-bf16-all": gpt("patrickstar-20b", "136GiB", 64, 4, "--moments", "bf16", "--master", "bf16"),
    "7b-24GiB-131k-device": llama("24GiB", 131072, 8, "--optimizer-placement", "device"),
    "7b-24GiB-131k-host": llama("24GiB", 131072, 8, "--optimizer-placement", "host"),
}


def arguments_of(name):
    if name in CASES:
        return CASES[name]
    kind, _, layers = name.rpartition("-")
    if kind not in DEEP or not layers.isdigit():
        raise SystemExit(f"there is no case {name}; there are: {', '.join(CASES)}")
    return deep(int(layers), *DEEP[kind])


def write_deep(folder, layers):
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 50257, "n_positions": 1024,
              "n_embd": 8192, "n_layer": layers, "n_head": 64, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
    path = os.path.join(folder, f"deep-{layers}")
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "config.json"), "w") as file:
        json.dump(config, file)
    return path


def run(options, name, folder):
    arguments = [word.replace("{folder}", folder) for word in arguments_of(name)]
    if arguments[0].startswith("deep-"):
        arguments[0] = write_deep(folder, int(arguments[0][5:]))
    if options.micro:
        arguments[arguments.index("--micro-batch") + 1] = str(options.micro)
    begin = time.monotonic()
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as metrics:
        command = [options.tutti, "train", *arguments, "--steps", str(options.steps), "--json", "--metrics", metrics.name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=options.most)
        except subprocess.TimeoutExpired as late:
            said = (late.stderr or b"").decode(errors="replace").strip()[-300:]
            return {"case": name, "error": f"not done within {options.most} s", "said": said}
        line = {"case": name, "wall": round(time.monotonic() - begin, 1)}
        if done.returncode != 0:
            return {**line, "error": done.stderr.strip()[-600:] or f"ended with status {done.returncode}"}
        found = {}
        for text in done.stdout.splitlines():
            found.update(json.loads(text))
        steps = [json.loads(text) for text in open(metrics.name)]
    seconds = [step["milliseconds"] / 1e3 for step in steps if "milliseconds" in step]
    step = statistics.median(seconds[1:])
    summary, result = found["summary"], found["result"]
    rate = summary["tokens_per_step"] / step
    line.update({"tokens_per_step": summary["tokens_per_step"], "step": round(step, 3), "steps": [round(s, 3) for s in seconds],
                 "tokens_per_second": round(rate, 1), "model_tflops": round(6 * summary["parameters"] * rate / 1e12, 1),
                 "loss": result["last_loss"], "waited_per_step": round(result["waited_seconds"] / options.steps, 3),
                 "device_memory": result["device_memory_bytes"], "memory": summary["memory_bytes"]})
    line.update(summary.get("offload", {}))
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--tutti", default="build/tutti")
    parser.add_argument("--seconds", type=float, default=330)
    parser.add_argument("--most", type=float, default=180, help="seconds of one case")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--micro", type=int, default=0)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        for name, arguments in CASES.items():
            print(name, " ".join(arguments))
        return
    begin = time.monotonic()
    for name in options.cases or CASES:
        if time.monotonic() - begin > options.seconds - 30:
            print(json.dumps({"case": name, "error": "no time left"}), flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(run(options, name, folder)), flush=True)


if __name__ == "__main__":
    main()
