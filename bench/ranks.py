#!/usr/bin/env python3
"""Many ranks on one machine: schedules, overlap and scaling, each rank one compute and one communication thread.

    python3 bench/ranks.py [schedules halves reduction scaling] [--tutti build/tutti] [--comm mpi] [--ranks 8] [--steps 6]

GPT-2 124M on text, sequences of 64. Prints a JSON line per run: the median step of those after the first two, and where
the run was traced what the simulation said of it.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

SEQUENCE = 64


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder

    def run(self, what, arguments, batch, micro_batch=1, trace=False):
        metrics, traced = os.path.join(self.folder, "metrics.jsonl"), os.path.join(self.folder, "trace.json")
        for path in (metrics, traced):
            if os.path.exists(path):
                os.remove(path)
        command = [self.options.tutti, "train", self.options.model, "--sequence", str(SEQUENCE), "--global-batch", str(batch),
                   "--micro-batch", str(micro_batch), "--steps", str(self.options.steps), "--threads", "1", "--metrics",
                   metrics, "--json", *arguments]
        if "--mesh" in arguments:
            command += ["--comm", self.options.comm]
        if trace:
            command += ["--trace", traced]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        line = {"bench": what, "arguments": " ".join(arguments), "global_batch": batch, "micro_batch": micro_batch}
        if done.returncode != 0:
            line["failed"] = (done.stderr or done.stdout)[-300:]
        else:
            with open(metrics) as steps:
                seconds = [json.loads(step)["milliseconds"] / 1e3 for step in steps]
            line["step_seconds"] = round(statistics.median(seconds[2:]), 4)
            line["tokens_per_second"] = round(batch * SEQUENCE / line["step_seconds"])
        if trace and os.path.exists(traced):
            report = subprocess.run([self.options.tutti, "report", traced, "--json"], capture_output=True, text=True)
            if report.returncode == 0:
                told = json.loads(report.stdout.strip().splitlines()[-1])
                line["traced_seconds"], line["simulated_seconds"] = (round(told["time"][key], 4)
                                                                     for key in ("measured", "simulated"))
                line["bubble"] = told["bubble"]
                line["waiting_seconds"] = [round(rank["measured"], 4) for rank in told["waiting"]]
        print(json.dumps(line), flush=True)

    def schedules(self):
        ranks = self.options.ranks
        for schedule, recompute in (("1f1b", "none"), ("interleaved", "none"), ("zb-1p", "none"), ("1f1b", "full"),
                                    ("shifted-critical-path", "full")):
            self.run("schedules", ["--mesh", f"pipe={ranks}", "--schedule", schedule, "--recompute", recompute],
                     2 * ranks, trace=True)

    def halves(self):
        for width in (2, 4, 8):
            for halves in ("off", "on"):
                self.run("halves", ["--mesh", f"tensor={width}", "--sub-pipeline", halves], 8, micro_batch=4)

    def reduction(self):
        for zero in ("0", "1", "2", "3"):
            self.run("reduction", ["--mesh", f"data={self.options.ranks}", "--zero", zero], 2 * self.options.ranks,
                     trace=True)

    def scaling(self):
        for ranks in (1, 2, 4, 8, 16):
            mesh = ["--mesh", f"data={ranks}"] if ranks > 1 else []
            self.run("weak", mesh, 2 * ranks)
            self.run("strong", mesh, 16)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("benches", nargs="*", default=[])
    options.add_argument("--tutti", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "tutti"))
    options.add_argument("--model", default="gpt2")
    options.add_argument("--comm", default="mpi")
    options.add_argument("--ranks", type=int, default=8)
    options.add_argument("--steps", type=int, default=6)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(chosen, folder)
        for name in chosen.benches or ["schedules", "halves", "reduction", "scaling"]:
            getattr(bench, name)()


if __name__ == "__main__":
    sys.exit(main())
