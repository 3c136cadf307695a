#!/usr/bin/env python3
"""Plans large models on large clusters with `tutti plan` and writes what came out.

For every case: the search alone (wall and cpu time of the whole command, peak memory), then with --compare: the joint
plan over choosing one thing after the other, over the best plan with 1F1B only, over plans set by hand, and without
each of the four choices.

    bench/planner.py build/tutti [--quick] [--only gpt-20b,gpt3-175b] > bench/results/DATE-planner.md

--quick leaves the comparison out. Exits with 1 where a target is missed.
"""
import argparse
import json
import os
import platform
import subprocess
import sys
import time

CASES = [  # model, cluster, global batch, sequence, seconds that the search may take
    ("gpt3-175b", "1024-a100", 1536, 2048, 10),
    ("llama3-70b", "512-h100", 1024, 8192, 10),
    ("gpt-20b", "64-rtx3090", 512, 2048, 10),
    ("gpt-8.3b", "64-rtx3090", 512, 1024, 10),
    ("gpt-2.5b", "64-rtx3090", 512, 1024, 10),
    ("gpt2-xl", "64-rtx3090", 512, 1024, 10),
    ("llama3-405b", "16384-h100", 2048, 8192, 60),
]
MOST_MEMORY = 2048  # MiB
OTHERS = ["one after the other", "without scheduling", "Megatron, 1F1B", "Megatron, interleaved", "Merak", "ZeRO 3",
          "without scaling", "without splitting", "without assignment"]
CLUSTERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples", "clusters")


class Run:
    def __init__(self, tutti, case, *more):
        model, cluster, batch, sequence, _ = case
        command = [tutti, "plan", model, "--cluster", os.path.join(CLUSTERS, cluster + ".toml"), "--global-batch",
                   str(batch), "--sequence", str(sequence), "--json", *more]
        begun = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit("failed: " + " ".join(command))
        self.wall = time.monotonic() - begun
        self.cpu = usage.ru_utime + usage.ru_stime
        self.memory = usage.ru_maxrss / 1024
        found = json.loads(text)
        self.plans, self.search = found["plans"], found["search"]
        self.load = os.getloadavg()[0]

    def raw(self, case, what):
        best = self.plans[0]
        print(f"{case[0]} {what}: {self.wall:.2f} s wall, {self.cpu:.2f} s cpu, {self.memory:.0f} MiB, load "
              f"{self.load:.1f}; {self.search['plans']} plans, {self.search['compiled']} stages compiled; "
              f"{best['step_seconds']:.4f} s, {best['tokens_per_second']:.0f} tokens/s, "
              f"{100 * best['utilisation']:.1f}% MFU: {best['plan']}", flush=True)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("tutti", nargs="?", default="build/tutti")
    arguments.add_argument("--quick", action="store_true", help="without the comparison")
    arguments.add_argument("--only", default="", help="models, separated by commas")
    given = arguments.parse_args()
    cases = [case for case in CASES if not given.only or case[0] in given.only.split(",")]
    print(f"`bench/planner.py {' '.join(sys.argv[1:])}` on {platform.machine()}, {os.cpu_count()} cores. Step times are "
          "predictions of the planner's model; nothing was run.\n\n```")
    rows = []
    for case in cases:
        alone = Run(given.tutti, case)
        alone.raw(case, "search")
        compared = None
        if not given.quick:
            compared = Run(given.tutti, case, "--compare")
            compared.raw(case, "with --compare")
            for plan in compared.plans:
                if plan["name"] in OTHERS:
                    print(f"  {plan['name']}: {plan['step_seconds']:.4f} s: {plan['plan']}", flush=True)
        rows.append((case, alone, compared))
    print("```\n\n| case | search, s wall | s cpu | peak MiB | target | joint plan | predicted step, s | tokens/s | MFU |")
    print("|---|---|---|---|---|---|---|---|---|")
    missed = []
    for case, run, _ in rows:
        best = run.plans[0]
        holds = run.wall <= case[4] and run.memory <= MOST_MEMORY
        if not holds:
            missed.append(case[0])
        print(f"| {case[0]} on {case[1]}, {case[2]} x {case[3]} | {run.wall:.1f} | {run.cpu:.1f} | {run.memory:.0f} | "
              f"{case[4]} s: {'holds' if holds else 'MISSED'} | {best['plan']} | {best['step_seconds']:.3f} | "
              f"{best['tokens_per_second']:.0f} | {100 * best['utilisation']:.1f}% |")
    if not given.quick:
        print("\nPredicted throughput of the joint plan over that of others (1.00: the same plan, or as fast):\n")
        print("| case | " + " | ".join(OTHERS) + " |\n|---" + "|---" * len(OTHERS) + "|")
        for case, _, run in rows:
            best = run.plans[0]["step_seconds"]
            times = {one["name"]: one["step_seconds"] for one in run.plans}
            cells = [f"{times[name] / best:.3f}" if name in times else "-" for name in OTHERS]
            print(f"| {case[0]} | " + " | ".join(cells) + " |")
        print("\n\"one after the other\" chooses scaling, then splitting, then the schedule, then the assignment; "
              "\"without scheduling\" is the best plan with 1F1B only; -: does not fit, or is no plan of this case.")
    if missed:
        sys.exit("targets missed: " + ", ".join(missed))


main()
