#!/usr/bin/python3
"""Tutti beside PyTorch, in one run on the same cores: GPT-2 124M, batch 4 x 256, turn by turn.

    /usr/bin/python3 bench/against_torch.py [--rounds 3] [--dtype float32|bf16] [--core-type SkylakeX]

Prints every program's JSON line and, at the end, the ratio of the medians and of the peak resident memory.
"""
import argparse
import json
import os
import statistics
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
TUTTI = os.path.join(HERE, "..", "build", "tutti")


def last_json(command, **environment):
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **environment})
    line = done.stdout.strip().splitlines()[-1]
    return json.loads(line)


def torch_round(dtype, core_type):
    command = ["/usr/bin/python3", os.path.join(HERE, "torch_gpt2.py"), "--steps", "3"]
    command += ["--bf16"] if dtype == "bf16" else []
    line = last_json(command, **({"OPENBLAS_CORETYPE": core_type} if core_type else {}))
    print(json.dumps({"torch": line}), flush=True)
    return line["tokens_per_second"], line["peak_rss_mib"]


def tutti_round(dtype):
    metrics = os.path.join("/tmp", f"against_torch_{os.getpid()}.jsonl")
    command = [TUTTI, "train", "gpt2", "--sequence", "256", "--global-batch", "4", "--steps", "4", "--lr", "1e-4",
               "--dtype", dtype, "--metrics", metrics, "--json"]
    result = last_json(command)["result"]
    with open(metrics) as lines:
        speeds = [json.loads(line)["tokens_per_second"] for line in lines][1:]  # the first touches the memory
    os.remove(metrics)
    line = {"tokens_per_second": statistics.median(speeds), "steps": speeds,
            "peak_rss_mib": result["peak_resident_bytes"] >> 20}
    print(json.dumps({"tutti": line}), flush=True)
    return line["tokens_per_second"], line["peak_rss_mib"]


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--dtype", default="float32", choices=["float32", "bf16"])
    options.add_argument("--core-type", default="SkylakeX")
    chosen = options.parse_args()
    theirs, ours = [], []
    for _ in range(chosen.rounds):
        theirs.append(torch_round(chosen.dtype, chosen.core_type))
        ours.append(tutti_round(chosen.dtype))
    speed = [statistics.median(speed for speed, _ in runs) for runs in (ours, theirs)]
    memory = [max(peak for _, peak in runs) for runs in (ours, theirs)]
    print(json.dumps({"dtype": chosen.dtype, "tutti_tokens_per_second": speed[0], "torch_tokens_per_second": speed[1],
                      "speed_ratio": speed[0] / speed[1], "memory_ratio": memory[0] / memory[1]}))


if __name__ == "__main__":
    main()
