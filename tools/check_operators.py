#!/usr/bin/env python3
"""Holds passes, sharding and planners to the traits of operators: `tools/check_operators.py [ROOT]`.

Names of operators and of communications are written where a node or an instruction is made, and read by the kernels. Nowhere else
are they compared, listed or looked for: a fact that several operators share is a trait (src/graph/traits.h), and what an
instruction is, its InstructionKind says. Complaints go to stdout as file:line: sentence; the exit status is 1 if there are any.
"""
import re
import sys
import tempfile
from pathlib import Path

# Folders that know operators by name, and those that know none and use such words for other things.
KNOW = {"ops", "backend", "models"}
KNOW_NONE = {"base", "cli", "comm", "data", "devices", "formats", "launch", "plan", "run", "terminal", "text"}
COMMUNICATIONS = {"send", "receive", "gather_chunk", "reduce_chunk"}

# Words that mean something else in a file, or that have a reason.
EXCEPTIONS = {
    ("costs/cluster_file.cpp", "attention"): "a key of cluster files",
    ("costs/cluster_file.cpp", "attention_gradient"): "a key of cluster files",
    ("costs/collectives.cpp", "all_reduce"): "a key of profiles",
    ("costs/collectives.cpp", "all_gather"): "a key of profiles",
    ("costs/collectives.cpp", "reduce_scatter"): "a key of profiles",
    ("costs/collectives.cpp", "all_to_all"): "a key of profiles",
    ("costs/measured.cpp", "adamw"): "a key of profiles: kernels that were timed",
    ("costs/measured.cpp", "squared_norm"): "a key of profiles: kernels that were timed",
    ("planner/explanation.cpp", "less"): "a word of a sentence",
    ("planner/strategies/description.cpp", "slice"): "a word of reports",
    ("planner/strategies/description.cpp", "all_reduce"): "a word of reports",
    ("planner/strategies/description.cpp", "all_gather"): "a word of reports",
    ("planner/strategies/description.cpp", "reduce_scatter"): "a word of reports",
    ("planner/strategies/description.cpp", "all_to_all"): "a word of reports",
    ("runtime/communication.cpp", "maximum"): "how partial results are combined",
    ("sharding/reshard.cpp", "maximum"): "how partial results are combined",
}

FACTORY = re.compile(r"^(?:Operator|.*\bOperator) (\w+)\(std::string_view name", re.M)
NAME = re.compile(r'\bname = "(\w+)"')
LITERAL = re.compile(r'"(\w+)"')
# What stands before a name where it makes something, or is given as a name of a kind.
MAKES = re.compile(r"(?:\b(?:add|add_node|emit|emit_node)\(|\.op =|\bFused\{|\breturn)\s*$")
PARTIAL = re.compile(r"\bop(?:->name)?\.(?:starts_with|ends_with|find|substr|contains)\(")


def without_comments(text):
    return re.sub(r"//[^\n]*", "", text)


def names_of_operators(ops):
    names = set()
    for path in sorted(ops.glob("*.cpp")):
        text = without_comments(path.read_text())
        names |= set(NAME.findall(text))
        for factory in FACTORY.findall(text):
            names |= set(re.findall(r"\b%s\(\s*\"(\w+)\"" % factory, text))
    return names


def complaints_about(text, names):
    """Pairs of a place in the text and a word; the word is empty where a part of a name is looked at."""
    for found in LITERAL.finditer(text):
        if found[1] in names and not MAKES.search(text[:found.start()]):
            yield found.start(), found[1]
    for found in PARTIAL.finditer(text):
        yield found.start(), ""


def check(root, exceptions):
    src = root / "src"
    names = names_of_operators(src / "ops") | COMMUNICATIONS
    found, used = 0, set()
    for path in sorted(src.rglob("*")):
        inside = path.relative_to(src)
        if path.suffix not in {".h", ".cpp", ".cu"} or inside.parts[0] in KNOW | KNOW_NONE:
            continue
        text = without_comments(path.read_text())
        for place, word in complaints_about(text, names):
            if (str(inside), word) in exceptions:
                used.add((str(inside), word))
                continue
            what = f'"{word}" is the name of an operator' if word else "a part of an operator's name is looked at"
            print(f"src/{inside}:{text.count(chr(10), 0, place) + 1}: {what}: ask for a trait (graph/traits.h) or an InstructionKind")
            found += 1
    for file, word in sorted(exceptions.keys() - used):
        print(f'src/{file}:1: tools/check_operators.py excepts "{word}" here, and it is not there')
        found += 1
    return found


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("ops", "graph", "cli"):
            (root / "src" / name).mkdir(parents=True)
        (root / "src/ops/matrix.cpp").write_text('Operator unary(std::string_view name, int flops) {}\n'
                                                 'Operator linear() { return {.name = "linear"}; }\nunary(\n    "gelu", 20);\n')
        assert names_of_operators(root / "src/ops") == {"linear", "gelu"}
        (root / "src/cli/a.cpp").write_text('if (word == "linear") return;\n')
        made = root / "src/graph/a.cpp"
        for good in ('graph.add(\n    "linear", {x});', 'Instruction one{.op = "gelu"};', 'case Kind::gelu: return "gelu";',
                     '// op == "linear"', 'word == "linearly"', "node.op->product"):
            made.write_text(good + "\n")
            assert check(root, {}) == 0, good
        bad = ('if (op == "linear") return;', 'array same = {"add", "gelu"};', 'fusion.is(i, "gelu")', 'one.op != "send"',
               'node.op->name.starts_with("lin")')
        for text in bad:
            made.write_text(text + "\n")
            assert check(root, {}) == 1, text
        made.write_text('if (op == "linear") return;\n')
        assert check(root, {("graph/a.cpp", "linear"): "a reason"}) == 0
        assert check(root, {("graph/a.cpp", "linear"): "a reason", ("graph/b.cpp", "gelu"): "none"}) == 1


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        import contextlib
        import io
        with contextlib.redirect_stdout(io.StringIO()):
            self_test()
        sys.exit(0)
    sys.exit(1 if check(Path(sys.argv[1] if len(sys.argv) > 1 else "."), EXCEPTIONS) else 0)
