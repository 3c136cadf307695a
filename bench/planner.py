#!/usr/bin/env python3
"""Plans large models on large clusters with `tutti plan` and writes a table of what came out.

For every case: the search alone (its time and peak memory), then with --compare: the joint plan over the best with
1F1B only, over choosing one thing after the other, over plans set by hand, and without each of the four choices.

    bench/planner.py build/tutti > bench/results/DATE-planner.md
"""
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
CLUSTERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples", "clusters")


def plan(tutti, case, *more):
    model, cluster, batch, sequence, _ = case
    command = [tutti, "plan", model, "--cluster", os.path.join(CLUSTERS, cluster + ".toml"), "--global-batch",
               str(batch), "--sequence", str(sequence), "--json", *more]
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit("failed: " + " ".join(command))
    wall = time.monotonic() - begun
    return json.loads(text), wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main():
    tutti = sys.argv[1] if len(sys.argv) > 1 else "build/tutti"
    print(f"# tutti plan, {time.strftime('%Y-%m-%d')}\n\n`bench/planner.py {tutti}` on {platform.machine()}, "
          f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start. Step times are predictions of the "
          "calibrated roofline; nothing was run.\n")
    print("| case | search s (wall) | s (cpu) | peak MB | plans | joint plan | step s | tokens/s | MFU |")
    print("|---|---|---|---|---|---|---|---|---|")
    rows = []
    for case in CASES:
        found, wall, cpu, memory = plan(tutti, case)
        best = found["plans"][0]
        print(f"| {case[0]} on {case[1]}, batch {case[2]} x {case[3]} | {wall:.1f} (of {case[4]}) | {cpu:.1f} | "
              f"{memory:.0f} | {found['search']['plans']} | {best['plan']} | {best['step_seconds']:.3f} | "
              f"{best['tokens_per_second']:.0f} | {100 * best['utilisation']:.1f}% |", flush=True)
        if "--quick" not in sys.argv:
            rows.append((case, plan(tutti, case, "--compare")[0]))
    if not rows:
        return
    print("\nThroughput of the joint plan over that of others (1.00: the same plan, or as fast):\n")
    names = ["Megatron, 1F1B", "Megatron, interleaved", "Merak", "ZeRO 3", "one after the other", "without scaling",
             "without splitting", "without scheduling", "without assignment"]
    print("| case | " + " | ".join(names) + " |\n|---" * 1 + "|---" * len(names) + "|")
    for case, found in rows:
        best = found["plans"][0]["step_seconds"]
        times = {one["name"]: one["step_seconds"] for one in found["plans"]}
        cells = [f"{times[name] / best:.2f}" if name in times else "does not fit" for name in names]
        print(f"| {case[0]} | " + " | ".join(cells) + " |")
    print("\n\"without scheduling\" is the best plan with 1F1B only; \"one after the other\" chooses scaling, then "
          "splitting, then the schedule, then the assignment.")


main()
