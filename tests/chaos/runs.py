"""Runs of tutti that are attacked, and the rules that hold for them whatever happens.

A `Bench` is a folder with a tiny model, a little data and the run made of them. Everything happens at that one path, so that
files that name it can be put back. For every scenario the run is made once in peace, and the shim writes down its calls.
"""
import json
import os
import random
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from disk import Disk, read_tree, write_tree
from journal import read_journal

STEPS, SAVE_EVERY, KEEP = 8, 2, 2
LIMIT = 120  # seconds after which a run hangs, on a machine that does much else
ALLOWED = {0, 2, 75}  # done; a user's or a file's mistake; the world's fault

# By name: further words, and the step from which the run is resumed.
SCENARIOS = {
    "one": ([], 0),
    "resumed": ([], 5),
    "threads": (["--ranks", "2", "--comm", "threads", "--mesh", "data=2", "--zero", "1"], 0),
    "processes": (["--ranks", "2", "--mesh", "data=2"], 0),
}

MODEL = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 16,
         "vocab_size": 256, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "tie_word_embeddings": True,
         "layer_norm_epsilon": 1e-5}


class Wrong(Exception):
    """What a run did other than it should have."""


def expect(holds, *said):
    if not holds:
        raise Wrong(" ".join(str(one) for one in said))


@dataclass
class End:
    """How a process ended, and what it said."""
    status: int  # minus the signal that killed it
    output: str
    errors: str

    def first_step(self):
        """The step after which it went on."""
        return json.loads(self.output.splitlines()[0])["summary"]["first_step"]

    def sentences(self):
        return [line for line in self.errors.splitlines() if not line.startswith("tutti: warning: ")]

    def shown(self):
        return f"status {self.status}, saying {self.errors.strip()!r}"


@dataclass
class Recording:
    """A run in peace: what there was before, its calls, and what came of it."""
    before: dict
    records: list
    after: dict
    saved: dict  # step -> the files of its checkpoint, of all steps


def steps_of(tree):
    """Step -> what the metrics say of it, as it was written: equal texts are equal bits."""
    steps = {}
    for line in tree.get("run/metrics.jsonl", b"").decode(errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if "eval_loss" in entry:
            steps[entry["step"], "evaluated"] = repr(entry["eval_loss"])
        elif "loss" in entry:
            steps[entry["step"], "trained"] = repr((entry["loss"], entry.get("grad_norm"), entry.get("lr")))
    return steps


def checkpoints_of(tree):
    return sorted(where for where in tree if re.fullmatch(r"run/checkpoints/[^/]+", where))


def saved_in(tree):
    """Step -> the files of its checkpoint."""
    found = {}
    for where in checkpoints_of(tree):
        if step := re.search(r"/step-(\d+)$", where):
            found[int(step[1])] = {name: tree.get(f"{where}/{name}") for name in ("checkpoint.json", "state.safetensors")}
    return found


class Bench:
    def __init__(self, tutti, shim, root):
        self.tutti, self.shim, self.root = str(tutti), str(shim), Path(root).resolve() / "files"
        self.beside = self.root.parent
        self.root.mkdir(parents=True)
        (self.root / "model").mkdir()
        (self.root / "model/config.json").write_text(json.dumps(MODEL))
        chance = random.Random(0)
        (self.root / "data.txt").write_text("".join(chance.choice("abcdef \n") for _ in range(4000)))
        self.start = read_tree(self.root)
        self.recordings = {}

    def words(self, scenario, *more):
        root = self.root
        return [self.tutti, "train", f"{root}/model", "--from-scratch", "--data", f"{root}/data.txt", "--sequence", "16",
                "--global-batch", "2", "--micro-batch", "1", "--steps", str(STEPS), "--save-every", str(SAVE_EVERY),
                "--keep", str(KEEP), "--eval-every", "4", "--eval-batches", "1", "--metrics", f"{root}/run/metrics.jsonl",
                "--output", f"{root}/run", "--threads", "1", "--timeout", "20", "--json", *SCENARIOS[scenario][0], *more]

    def environment(self, attack=None, rank=None, journal=None):
        names = {"PATH": os.environ["PATH"], "HOME": str(self.beside), "XDG_CACHE_HOME": f"{self.beside}/cache",
                 "TMPDIR": f"{self.beside}/temporary", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive",
                 "TUTTI_CHAOS_MARK": str(self.root), "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
        os.makedirs(names["TMPDIR"], exist_ok=True)
        if attack or journal:
            names |= {"LD_PRELOAD": self.shim, "TUTTI_CHAOS_ROOT": str(self.root)}
        if attack:
            names["TUTTI_CHAOS_ATTACK"] = attack
        if rank is not None:
            names["TUTTI_CHAOS_RANK"] = str(rank)
        if journal:
            names["TUTTI_CHAOS_JOURNAL"] = str(journal)
        return names

    def run(self, words, strike=None, output=None, errors=None, **attack):
        """Runs to the end. `strike` is called with the process while it runs; what is said goes to files, or elsewhere."""
        out, err = self.beside / "out", self.beside / "err"
        out.write_bytes(b"")
        err.write_bytes(b"")
        with open(output or out, "wb") as output, open(errors or err, "wb") as errors:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                                       env=self.environment(**attack), start_new_session=True)
            try:
                if strike:
                    strike(process)
                status = process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                self._end_processes()
                process.wait()
        expect(status is not None, "it did not end within", LIMIT, "s; it said:", repr(err.read_text(errors="replace")))
        return End(status, out.read_text(errors="replace"), err.read_text(errors="replace"))

    def processes(self):
        """Those of this bench that are not over, with the ranks of those that have one."""
        found = {}
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit():
                continue
            try:
                variables = Path(entry.path, "environ").read_bytes().decode(errors="replace").split("\0")
                state = Path(entry.path, "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:  # it has ended, or is not ours
                continue
            if f"TUTTI_CHAOS_MARK={self.root}" in variables and state not in "ZX":
                ranks = [one.split("=")[1] for one in variables if one.startswith("OMPI_COMM_WORLD_RANK=")]
                found[int(entry.name)] = int(ranks[0]) if ranks else None
        return found

    def _end_processes(self):
        end = time.monotonic() + LIMIT
        while found := self.processes():
            for process in found:
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            expect(time.monotonic() < end, "processes cannot be killed:", found)
            time.sleep(0.01)

    def record(self, scenario):
        """The run in peace, made where it was not made yet."""
        if scenario in self.recordings:
            return self.recordings[scenario]
        before, more = self.start, []
        write_tree(self.root, before)
        every = self.run(self.words(scenario, "--save-every", "1", "--keep", str(STEPS)))
        expect(every.status == 0, "the run in peace:", every.shown())
        saved = saved_in(read_tree(self.root))
        write_tree(self.root, before)
        if stop := SCENARIOS[scenario][1]:
            first = self.run(self.words(scenario, "--stop-after", str(stop)))
            expect(first.status == 0, "the run in peace:", first.shown())
            before, more = read_tree(self.root), ["--resume"]
        journal = self.beside / f"journal-{scenario}"
        disk = Disk(self.root)
        end = self.run(self.words(scenario, *more), journal=journal)
        expect(end.status == 0, "the run in peace:", end.shown())
        records, after = read_journal(journal), read_tree(self.root)
        for record in records:
            if record.counts():
                disk.apply(record)
        model = disk.tree()
        differs = [where for where in model.keys() | after.keys() if model.get(where, 0) != after.get(where, 0)]
        expect(not differs, "the shim missed what changed", differs)
        journal.unlink()
        self.recordings[scenario] = Recording(before, records, after, saved)
        return self.recordings[scenario]

    def whole_steps(self, scenario, tree):
        """The steps of which a whole checkpoint is there: with the bytes that the run in peace saved."""
        saved = self.record(scenario).saved
        return [step for step, files in saved_in(tree).items() if files == saved.get(step)]


def check_end(end, allowed=frozenset(ALLOWED)):
    """It ended in good order, and if in failure, with one sentence."""
    expect(end.status in allowed, "it ended with", end.shown())
    expect("defect in tutti" not in end.errors, "it ended with", end.shown())
    if end.status in (2, 75):
        sentences = end.sentences()
        expect(len(sentences) == 1 and sentences[0].startswith("tutti: "), "it ended with", end.shown())


def check_result(recording, tree, first_step, whole_metrics=True, damaged=()):
    """What a finished run left is what the run in peace left, to the bit. Files that were damaged before may stay so where
    the run had no reason to write them again: steps and checkpoints that it did not come by."""
    after = recording.after
    for where in after:
        if where.startswith("run/model/") and not (where in damaged and first_step == STEPS):
            expect(tree.get(where) == after[where], where, "differs from that of the run in peace" if where in tree else "is missing")
    check_checkpoints(recording, tree, first_step, damaged)
    steps, expected = steps_of(tree), steps_of(after)
    if "run/metrics.jsonl" in damaged:
        steps, whole_metrics = {step: said for step, said in steps.items() if step[0] > first_step}, False
    differs = [step for step in steps if steps[step] != expected.get(step)]
    expect(not differs, "the metrics differ in", differs)
    missing = [step for step in expected if step not in steps and (whole_metrics or step[0] > first_step)]
    expect(not missing, "the metrics lack", missing)


def check_checkpoints(recording, tree, first_step, damaged):
    """The last step is there, and of others so many as are kept, whole; nothing else is left of any."""
    found = saved_in(tree)
    strange = [where for where in checkpoints_of(tree) if not re.search(r"/step-\d{8}$", where)]
    expect(not strange, "this is left:", strange)
    for step, files in found.items():
        if files != recording.saved.get(step):
            where = f"run/checkpoints/step-{step:08}"
            expect(step <= first_step and any(one.startswith(where) for one in damaged), where, "is not whole")
    whole = [step for step in found if found[step] == recording.saved.get(step)]
    expect(STEPS in whole or (first_step == STEPS and damaged), "the last step is not among the checkpoints", sorted(found))
    if first_step < STEPS:  # else nothing was saved, and nothing removed for it
        expect(len(whole) <= KEEP, "more checkpoints are kept than", KEEP, ":", sorted(whole))


def check_resumed(bench, scenario, tree, whole_metrics=True, damaged=()):
    """From such a folder the run goes on to the same end, and not from an earlier step than it has to. It may say no where
    all that it could go on from is damaged, or the model that a finished run left."""
    recording = bench.record(scenario)
    newest = max(bench.whole_steps(scenario, tree), default=0)
    write_tree(bench.root, tree)
    end = bench.run(bench.words(scenario, "--resume"))
    may_refuse = damaged and (newest == 0 or any(where.startswith("run/model/") for where in damaged))
    check_end(end, ALLOWED if may_refuse else {0})
    if end.status != 0:
        return end
    first = end.first_step()
    expect(first >= newest, "it went on after step", first, "although the checkpoint of step", newest, "is whole")
    expect(first == 0 or first in recording.saved, "it went on after step", first, "of which there was none")
    check_result(recording, read_tree(bench.root), first, whole_metrics, damaged)
    return end
