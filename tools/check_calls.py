#!/usr/bin/env python3
"""Finds calls that end a run in the wrong way: `tools/check_calls.py [ROOT]`.

Functions of std::filesystem that take no std::error_code throw an exception that no class of failure stands for, and
fmt::print throws where standard error is full. base/file.h and terminal/terminal.h have what is used instead. Complaints go
to stdout as file:line: sentence; the exit status is 1 if there are any.
"""
import re
import sys
from pathlib import Path

THROWING = re.compile(r"\bfs::(exists|is_\w+|file_size|create_\w+|remove(?:_all)?|rename|canonical|weakly_canonical|absolute|copy\w*|"
                      r"current_path|read_symlink|space|equivalent|temp_directory_path|last_write_time|resize_file|(?:symlink_)?status|"
                      r"(?:recursive_)?directory_iterator)\s*(?:\w+\s*)?\(([^;]*)")
CODE_NAMES = ("ignored", "failed", "error", "unknown", "same")  # what an error_code is called


def complaints_about(line):
    if "fmt::print(" in line:
        yield "fmt::print throws where nobody can be told: print, warn or say_on_errors of terminal/terminal.h do not"
    for name, arguments in THROWING.findall(line):
        if not re.search(r"\b(%s)\b" % "|".join(CODE_NAMES), arguments):
            yield f"fs::{name} throws without an error_code: base/file.h has is_there, is_file, is_folder, entries_of"


def check(root):
    found = 0
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in {".h", ".cpp", ".cu"}:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for sentence in complaints_about(line.split("//")[0]):
                print(f"{path.relative_to(root)}:{number}: {sentence}")
                found += 1
    return found


def self_test():
    bad = ["if (fs::exists(path)) return;", "for (auto& x : fs::directory_iterator(folder))", 'fmt::print(stderr, "x");',
           "fs::remove_all(folder);"]
    good = ["if (fs::exists(path, ignored)) return;", "fs::path file(name);", "fs::remove_all(folder, failed);", "is_there(path)"]
    assert all(list(complaints_about(line)) for line in bad)
    assert not any(list(complaints_about(line)) for line in good)


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        sys.exit(0)
    sys.exit(1 if check(Path(sys.argv[1] if len(sys.argv) > 1 else ".")) else 0)
