#!/usr/bin/env python3
"""How fast and how even steps are with ranks bound to cores and without: turn by turn, on all cores that it may use.

    python3 bench/binding.py [--ranks 8] [--threads 2] [--steps 50] [--model gpt2] [--comm threads|mpi] [--rounds 2]

Prints a JSON line for each run: the median step, the tenth and ninetieth percentile and the slowest, in seconds. The
first three steps, which touch the memory, are left out.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

TUTTI = os.environ.get("TUTTI", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "tutti"))


def steps_of(options, bind):
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "metrics.jsonl")
        command = [TUTTI, "train", options.model, "--ranks", str(options.ranks), "--threads", str(options.threads),
                   "--mesh", f"data={options.ranks}", "--comm", options.comm, "--bind", bind, "--dtype", options.dtype,
                   "--sequence", "256", "--global-batch", str(options.ranks), "--steps", str(options.steps + 3),
                   "--lr", "1e-4", "--metrics", metrics, "--json"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        binding = json.loads(done.stdout.splitlines()[0])["summary"]["binding"]
        with open(metrics) as lines:
            speeds = [json.loads(line) for line in lines]
        tokens = 256 * options.ranks
        return binding, [tokens / line["tokens_per_second"] for line in speeds if "tokens_per_second" in line][3:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--comm", default="threads", choices=["threads", "mpi"])
    parser.add_argument("--bind", default="none,auto", help="what to compare")
    options = parser.parse_args()
    for _ in range(options.rounds):
        for bind in options.bind.split(","):
            binding, seconds = steps_of(options, bind)
            tenths = statistics.quantiles(seconds, n=10)
            print(json.dumps({"bind": bind, "comm": options.comm, "ranks": options.ranks, "threads": options.threads,
                              "median": round(statistics.median(seconds), 4), "p10": round(tenths[0], 4),
                              "p90": round(tenths[-1], 4), "slowest": round(max(seconds), 4),
                              "binding": binding}), flush=True)


if __name__ == "__main__":
    main()
