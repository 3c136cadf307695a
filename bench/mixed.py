#!/usr/bin/env python3
"""A mixed cluster for real: ranks with unequal numbers of threads, the planner's choice against every uniform plan.

    python3 bench/mixed.py [--tutti build/tutti] [--threads 3,3,1,1] [--layers 12] [--width 512] [--global-batch 16]
                           [--sequence 64] [--steps 5] [--rounds 3] [--micro-batches 1,2,4] [--save FOLDER]

1. Every kind of rank (number of threads) is timed alone with one step of the model, all kinds at once, and described in
   a cluster.toml so that `tutti plan` predicts that time; links are measured by `tutti profile`.
2. `tutti plan` chooses for that cluster; its plan.json is trained some steps.
3. Every uniform plan is trained, too: each mesh of as many ranks, with stages of equal work, devices in every order that
   differs, 1F1B and the chosen plan's schedule, each micro-batch.
4. The best of the uniform ones and the chosen one are run again in turns, `rounds` times; their medians count.

Prints a JSON line per run, and the ratio at the end.
"""
import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

from ranks import write_model


def run(command, timeout=180):
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise RuntimeError((done.stderr or done.stdout).strip()[-400:])
    return done.stdout


class Mixed:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.threads = [int(number) for number in options.threads.split(",")]
        self.model = os.path.join(folder, "model")
        write_model(self.model, options.layers, options.width)
        self.runs = 0

    def workload(self):
        return ["--global-batch", str(self.options.global_batch), "--sequence", str(self.options.sequence)]

    def step_seconds(self, command):
        """Starts a run; a function that waits for it and gives the median step of those after the first two."""
        self.runs += 1
        metrics = os.path.join(self.folder, f"metrics-{self.runs}.jsonl")
        process = subprocess.Popen([*command, "--metrics", metrics, "--json", "--seed", "1"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)

        def wait():
            out, err = process.communicate(timeout=180)
            if process.returncode != 0:
                raise RuntimeError((err or out).strip()[-400:])
            with open(metrics) as file:
                steps = [json.loads(line) for line in file]
            steps = [step for step in steps if "milliseconds" in step]
            seconds = [step["milliseconds"] / 1e3 for step in steps]
            return statistics.median(seconds[2:] or seconds), steps[-1]["loss"]
        return wait

    def train(self, what, arguments, threads, timed=True):
        command = [self.options.tutti, "train", self.model, "--device", "cpu", "--comm", "threads", "--threads",
                   ",".join(map(str, threads)), "--steps", str(self.options.steps), *arguments]
        line = {"run": what, "threads": threads, "arguments": " ".join(arguments).replace(self.folder, "")}
        try:
            line["step_seconds"], line["loss"] = self.step_seconds(command)()
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            line["failed"] = str(error)
        print(json.dumps(line), flush=True)
        return line

    # A cluster whose kinds take as long as their ranks did.
    def device(self, kind, flops):
        shares = "products = 0.9\nhead = 0.9\nattention = 0.5\nattention_gradient = 0.5\nmemory = 0.9\noptimizer = 0.9\n"
        return (f'[[devices]]\nname = "threads-{kind}"\nmemory = "8GiB"\nflops16 = {flops:.6g}\nflops32 = {flops:.6g}\n'
                f'bandwidth = {flops / 8:.6g}\nlaunch = "1us"\n[devices.efficiency]\n{shares}\n')

    def cluster(self, kinds, link, name):
        """`kinds`: flops by number of threads, for the devices as they come; equal neighbours are a node."""
        latency, bandwidth = link
        text = f'name = "{name}"\n\n' + "".join(self.device(kind, kinds[kind]) for kind in dict.fromkeys(self.used))
        nodes = [(kind, len(list(group))) for kind, group in itertools.groupby(self.used)]
        speed = f"latency = {latency:.6g}\nbandwidth = {bandwidth:.6g}\nlink_efficiency = 1\n"
        for kind, count in nodes:
            text += f'[[nodes]]\ndevices = {count}\ndevice = "threads-{kind}"\n{speed}\n'
        if len(nodes) > 1:
            text += f'[[levels]]\nname = "between"\n{speed}'
        path = os.path.join(self.folder, name + ".toml")
        with open(path, "w") as file:
            file.write(text)
        return path

    def plan(self, cluster, *more):
        return json.loads(run([self.options.tutti, "plan", self.model, "--cluster", cluster, "--dtype", "float32",
                               *self.workload(), "--json", *more]))

    def links(self):
        profile = json.loads(run([self.options.tutti, "profile", self.model, "--ranks", "2", "--comm", "threads",
                                  "--threads", "1", "--tensor", "1", "--sequence", str(self.options.sequence),
                                  "--json"]).split("\n\n")[-1])
        messages = profile["messages"]
        return messages[0]["seconds"], messages[-1]["bytes"] / messages[-1]["seconds"]

    def calibrate(self, link):
        kinds = sorted(set(self.threads), reverse=True)
        command = [self.options.tutti, "train", self.model, "--device", "cpu", "--steps", "5", *self.workload(),
                   "--micro-batch", "1"]
        waits = [self.step_seconds([*command, "--threads", str(kind)]) for kind in kinds]  # all at once
        flops = {}
        for kind, wait in zip(kinds, waits):
            measured = wait()[0]
            self.used = [kind]
            nominal = 1e11
            for _ in range(2):  # what is not in proportion, such as launches, makes a second look worth it
                predicted = self.plan(self.cluster({kind: nominal}, link, f"one-{kind}"))["plans"]
                told = min(one["step_seconds"] for one in predicted)
                nominal *= told / measured
            flops[kind] = nominal
            print(json.dumps({"calibrated": kind, "step_seconds": measured, "flops": nominal}), flush=True)
        self.used = self.threads
        return flops

    def uniform(self, family):
        """Every mesh with every order of devices that differs, as arguments and threads by rank."""
        count = len(self.threads)
        for data, pipe, tensor in itertools.product(range(1, count + 1), repeat=3):
            if data * pipe * tensor != count or 16 % tensor != 0 or pipe > 2 * self.options.layers:
                continue
            seen = set()
            for order in sorted(set(itertools.permutations(self.threads))):
                def at(p, d):
                    return tuple(sorted(order[(p * data + d) * tensor:][:tensor]))
                same = tuple(sorted(tuple(at(p, d) for p in range(pipe)) for d in range(data)))
                if same in seen:
                    continue
                seen.add(same)
                for size in map(int, self.options.micro_batches.split(",")):
                    if self.options.global_batch % (data * size) != 0:
                        continue
                    for schedule in dict.fromkeys(["1f1b", family] if pipe > 1 else [""]):
                        arguments = [*self.workload(), "--micro-batch", str(size), "--mesh",
                                     f"data={data},pipe={pipe},tensor={tensor}"]
                        if schedule:
                            arguments += ["--schedule", schedule]
                        yield arguments, order

    def bench(self):
        link = self.links()
        print(json.dumps({"link_latency": link[0], "link_bytes_per_second": link[1]}), flush=True)
        cluster = self.cluster(self.calibrate(link), link, "mixed")
        chosen = os.path.join(self.folder, "chosen.json")
        found = self.plan(cluster, "--output", chosen)
        with open(chosen) as file:
            plan = json.load(file)
        best = found["plans"][0]
        family = plan["schedule"]["family"] if "schedule" in plan else "1f1b"
        print(json.dumps({"chosen": best["plan"], "layout": found["layout"], "predicted": best["step_seconds"],
                          "cuts": plan["cuts"], "devices": plan["devices"]}), flush=True)
        if self.options.save:
            for path in (cluster, chosen):
                shutil.copy(path, self.options.save)
        first = self.train("chosen", ["--plan", chosen], self.threads)
        if "failed" in first:
            sys.exit("the chosen plan does not run")
        lines = []
        for arguments, order in self.uniform(family):
            line = self.train("uniform", arguments, order)
            if "failed" in line:
                continue
            lines.append((line["step_seconds"], arguments, order))
            if abs(line["loss"] - first["loss"]) > 1e-4 * first["loss"]:
                sys.exit("a uniform plan has another loss")
        lines.sort(key=lambda line: line[0])
        rivals = lines[:3]
        again = {"chosen": []} | {number: [] for number in range(len(rivals))}
        for _ in range(self.options.rounds):
            again["chosen"].append(self.train("chosen", ["--plan", chosen], self.threads)["step_seconds"])
            for number, (_, arguments, order) in enumerate(rivals):
                again[number].append(self.train("uniform", arguments, order)["step_seconds"])
        median = {name: statistics.median(times) for name, times in again.items()}
        rival = min(range(len(rivals)), key=lambda number: median[number])
        print(json.dumps({"uniform_plans": len(lines), "chosen_seconds": median["chosen"],
                          "predicted_seconds": best["step_seconds"], "best_uniform_seconds": median[rival],
                          "best_uniform": " ".join(rivals[rival][1]), "its_threads": rivals[rival][2],
                          "ratio": round(median[rival] / median["chosen"], 3),
                          "ratios_of_rounds": [round(min(again[n][i] for n in range(len(rivals))) / one, 3)
                                               for i, one in enumerate(again["chosen"])]}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tutti", default="build/tutti")
    parser.add_argument("--threads", default="3,3,1,1")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--global-batch", type=int, default=16)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--micro-batches", default="1,2,4")
    parser.add_argument("--save")
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    with tempfile.TemporaryDirectory() as folder:
        Mixed(options, folder).bench()


if __name__ == "__main__":
    main()
