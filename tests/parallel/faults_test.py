#!/usr/bin/env python3
"""Ranks that are killed or stopped while tutti trains on several processes: `faults_test.py TUTTI [SEED]`.

Whatever happens to a rank, wherever the others are: the run ends with status 75 and one sentence that names the rank, no
process is left, the newest checkpoint loads, and the resumed run gives the bits of one that nothing happened to.
"""
import concurrent.futures
import filecmp
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

TIMEOUT = 8  # of operations, in seconds, where a rank is lost
USUAL = 600  # the default, before which those without a sign of life are noticed
SILENCE = 30 + 6 + 3  # that a rank may keep; before anybody asks; to be sure
PATIENCE = 120  # where none is: whatever else the machine does
SLACK = 20  # for ranks that answer late and for processes that end slowly, on a busy machine
STEPS, SAVE_EVERY = 24, 4
AT_ONCE = 8
SKIPPED = 77

MESHES = {"data": "data=2", "pipe": "pipe=2", "both": "pipe=2,tensor=2"}


@dataclass(frozen=True)
class Case:
    mesh: str
    rank: int
    signal: signal.Signals
    moment: str  # a step, a collective or a checkpoint
    timeout: int = TIMEOUT

    def __str__(self):
        return f"{self.signal.name} to rank {self.rank} of {MESHES[self.mesh]} in a {self.moment}, timeout {self.timeout} s"

    def limit(self):
        """Seconds after which the run has to have ended."""
        return min(self.timeout, SILENCE) + SLACK


CASES = [Case("data", 1, signal.SIGKILL, "step", USUAL), Case("pipe", 0, signal.SIGKILL, "step"),
         Case("both", 2, signal.SIGKILL, "collective", USUAL), Case("data", 0, signal.SIGKILL, "collective"),
         Case("data", 1, signal.SIGKILL, "checkpoint"), Case("pipe", 0, signal.SIGKILL, "checkpoint", USUAL),
         Case("both", 3, signal.SIGSTOP, "step", USUAL), Case("data", 0, signal.SIGSTOP, "checkpoint")]


class Wrong(Exception):
    """What a run did other than it should have."""


def expect(holds, *said):
    if not holds:
        raise Wrong(" ".join(str(one) for one in said))


class Run:
    """tutti train on the ranks of a mesh, in a folder of its own; its processes carry the folder in their environment."""

    def __init__(self, tutti, folder, mesh, timeout, *more):
        self.folder, self.errors = folder, folder.with_suffix(".err")
        self.mark = f"TUTTI_TEST_RUN={folder}"
        ranks = 1
        for axis in MESHES[mesh].split(","):
            ranks *= int(axis.split("=")[1])
        name, value = self.mark.split("=", 1)
        command = [tutti, "train", "gpt2-tiny", "--ranks", str(ranks), "--mesh", MESHES[mesh],
                   "--timeout", str(timeout), "--steps", str(STEPS), "--save-every", str(SAVE_EVERY), "--sequence", "32",
                   "--global-batch", "4", "--micro-batch", "1", "--threads", "1", "--zero", "1" if mesh == "data" else "0",
                   "--no-tensorboard", "--output", str(folder), "--metrics", str(self.metrics), "--json", *more]
        with open(self.errors, "wb") as errors, open(folder.with_suffix(".out"), "wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                                            env={**os.environ, name: value, "OMP_WAIT_POLICY": "passive"})

    @property
    def metrics(self):
        return self.folder.with_suffix(".jsonl")

    def processes(self):
        """Processes of this run that are not over, with the ranks of those that have one."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                variables = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:  # it has ended, or is not ours
                continue
            if self.mark in variables and state not in "ZX":
                ranks = [v.split("=")[1] for v in variables if v.startswith("OMPI_COMM_WORLD_RANK=")]
                found[int(entry.name)] = int(ranks[0]) if ranks else None
        return found

    def process_of(self, rank):
        found = [process for process, of in self.processes().items() if of == rank]
        expect(len(found) == 1, "rank", rank, "has the processes", found)
        return found[0]

    def steps(self):
        """Loss and norm by step, as the program wrote them: equal texts are equal bits."""
        steps = {}
        for line in self.metrics.read_text().splitlines() if self.metrics.exists() else []:
            try:
                entry = json.loads(line)
            except ValueError:  # it is being written
                continue
            steps[entry["step"]] = (repr(entry["loss"]), repr(entry["grad_norm"]))
        return steps

    def steps_done(self):
        return self.metrics.read_bytes().count(b"\n") if self.metrics.exists() else 0

    def until(self, condition, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while not condition():
            expect(self.process.poll() is None, "it ended early:", self.errors.read_text())
            expect(time.monotonic() < end, "it did not come that far within", seconds, "s")
            time.sleep(0.002)

    def wait(self, seconds):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Wrong(f"it did not end within {seconds} s; it said: {self.errors.read_text()!r}") from None

    def end(self):
        for process in self.processes():
            os.kill(process, signal.SIGKILL)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def checkpoints(folder):
    return sorted(int(one.name.removeprefix("step-")) for one in (folder / "checkpoints").glob("step-*[0-9]"))


def strike(run, case, chance):
    """Waits for the moment and does to the rank what the case says."""
    run.until(lambda: checkpoints(run.folder))
    process, other = run.process_of(case.rank), run.process_of(1 if case.rank == 0 else 0)
    if case.moment == "checkpoint":
        run.until(lambda: any((run.folder / "checkpoints").glob("*.tmp")))
        time.sleep(chance.uniform(0, 0.02))
    else:
        done = chance.randrange(SAVE_EVERY, STEPS // 2)
        run.until(lambda: run.steps_done() > done)
        time.sleep(chance.uniform(0, 0.05))
    if case.moment == "collective":  # one that waits for another rank is in one for certain
        os.kill(other, signal.SIGSTOP)
        time.sleep(1)
        os.kill(process, case.signal)
        os.kill(other, signal.SIGCONT)
    else:
        os.kill(process, case.signal)


def check_end(run, case):
    status = run.wait(case.limit())
    said = run.errors.read_text()
    expect(status == 75, "its status is", status, "and it said", repr(said))
    expect(said.startswith("tutti: ") and said.count("\n") == 1, "it said", repr(said))
    expect(f"rank {case.rank} does not answer (it was killed or stopped)" in said, "it said", repr(said))
    expect(not run.processes(), "processes are left:", run.processes())


def check_same_bits(run, reference):
    steps, expected = run.steps(), reference.steps()
    expect(list(steps) == list(range(1, STEPS + 1)), "its metrics are of the steps", list(steps))
    differs = [step for step in steps if steps[step] != expected[step]]
    expect(not differs, "losses or norms differ in the steps", differs)
    for file in ["model/model.safetensors", f"checkpoints/step-{STEPS:08}/state.safetensors"]:
        expect(filecmp.cmp(run.folder / file, reference.folder / file, shallow=False), file, "differs")


def check_resumed(tutti, folder, mesh, reference):
    newest = checkpoints(folder)[-1]
    run = Run(tutti, folder, mesh, PATIENCE, "--resume")
    try:
        status = run.wait(PATIENCE)
        said = run.errors.read_text()
        expect(status == 0 and said == "", "resumed, its status is", status, "and it said", repr(said))
    finally:
        run.end()
    summary = json.loads(folder.with_suffix(".out").read_text().splitlines()[0])["summary"]
    expect(summary["first_step"] == newest, "it went on after step", summary["first_step"], "instead of", newest)
    check_same_bits(run, reference)
    left = [one.name for one in (folder / "checkpoints").glob("*.tmp")]
    expect(not left, "half a checkpoint is left:", left)


def try_case(tutti, folder, case, reference, seed):
    run = Run(tutti, folder, case.mesh, case.timeout)
    try:
        strike(run, case, random.Random(f"{seed} {case}"))
        struck = time.monotonic()
        check_end(run, case)
        took, said = time.monotonic() - struck, run.errors.read_text().strip()
    finally:
        run.end()
    check_resumed(tutti, folder, case.mesh, reference)
    return f"{took:.1f} s later: {said}"


def try_launcher(tutti, folder, mesh, reference):
    """The process that the user started is killed: the ranks save their work and end."""
    run = Run(tutti, folder, mesh, PATIENCE)
    try:
        run.until(lambda: checkpoints(folder))
        run.process.kill()
        run.process.wait()
        killed = time.monotonic()
        while run.processes():
            expect(time.monotonic() < killed + TIMEOUT + SLACK, "processes are left:", run.processes())
            time.sleep(0.1)
        took = time.monotonic() - killed
    finally:
        run.end()
    check_resumed(tutti, folder, mesh, reference)
    return f"{took:.1f} s later all have ended"


def reference_run(tutti, folder, mesh):
    run = Run(tutti, folder, mesh, PATIENCE)
    try:
        status = run.wait(PATIENCE)
        expect(status == 0, "the run that nothing happens to ends with", status, run.errors.read_text())
    finally:
        run.end()
    return run


def main(tutti, seed="0"):
    if not shutil.which("mpirun") or not (Path(tutti).parent / "libtutti_mpi.so").exists():
        print("skipped: there is no mpirun, or no plug-in for MPI")
        return SKIPPED
    failed = 0
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        folder = Path(name)
        references = {mesh: pool.submit(reference_run, tutti, folder / f"whole-{mesh}", mesh) for mesh in MESHES}
        references = {mesh: run.result() for mesh, run in references.items()}
        tries = {}
        for number, case in enumerate(CASES):
            tries[case] = pool.submit(try_case, tutti, folder / f"case-{number}", case, references[case.mesh], seed)
        tries["SIGKILL to what started the ranks"] = \
            pool.submit(try_launcher, tutti, folder / "launcher", "data", references["data"])
        for case, one in tries.items():
            try:
                print(f"{case}: {one.result()}", flush=True)
            except Wrong as wrong:
                failed += 1
                print(f"{case}: FAILED: {wrong}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
