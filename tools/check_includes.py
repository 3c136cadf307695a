#!/usr/bin/env python3
"""Holds the sources to the arrows between folders: `tools/check_includes.py [ROOT]`.

A folder's CMakeLists.txt declares what it depends on: tutti_library(name DEPENDS a b ...), or add_executable with
target_link_libraries. A file belongs to the nearest folder above it that declares something. It may include headers of
that folder and of the folders that it names itself, and it names no folder of which it includes nothing. Dependencies may
not form a cycle, and headers are included by their path from src/. Complaints go to stdout as file:line: sentence; the exit status is 1 if there are any.
"""
import re
import sys
import tempfile
from pathlib import Path

DECLARATION = re.compile(r"\b(tutti_(?!test\b)\w+|add_executable|target_link_libraries)\s*\(\s*([\w-]+)([^)]*)\)")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
SOURCES = {".h", ".hpp", ".cpp", ".cu", ".cuh"}


class Folder:
    """A folder of src/ that declares a library or the program, and the names of the libraries it may see."""

    def __init__(self, path):
        self.path, self.name, self.depends = path, None, []


def read_folders(src):
    folders = []
    for cmake in sorted(src.rglob("CMakeLists.txt")):
        folder = Folder(cmake.parent)
        text = re.sub(r"#.*", "", cmake.read_text())
        for command, name, rest in DECLARATION.findall(text):
            words = rest.split()
            if command == "target_link_libraries":
                folder.depends += words
            else:
                folder.name = folder.name or name
                if "DEPENDS" in words:
                    words = words[words.index("DEPENDS") + 1:]
                    end = next((i for i, word in enumerate(words) if re.fullmatch(r"[A-Z_]+", word)), len(words))
                    folder.depends += words[:end]
        if folder.name:
            folders.append(folder)
    names = {folder.name for folder in folders}
    for folder in folders:  # the rest are libraries from outside
        folder.depends = [name for name in dict.fromkeys(folder.depends) if name in names]
    return folders


def find_cycle(folders):
    depends = {folder.name: folder.depends for folder in folders}
    finished = set()

    def visit(name, trail):
        if name in trail:
            return trail[trail.index(name):] + [name]
        if name in finished:
            return None
        for other in depends[name]:
            if cycle := visit(other, trail + [name]):
                return cycle
        finished.add(name)
        return None

    return next((cycle for name in depends if (cycle := visit(name, []))), None)


def check(root):
    src = root / "src"
    folders = read_folders(src)
    by_name = {folder.name: folder for folder in folders}
    by_path = {folder.path: folder for folder in folders}
    complaints = []

    def owner_of(path):
        return next((by_path[above] for above in path.parents if above in by_path), None)

    if cycle := find_cycle(folders):
        cmake = (by_name[cycle[0]].path / "CMakeLists.txt").relative_to(root)
        complaints.append(f"{cmake}:1: the declared dependencies go round in a circle: {' -> '.join(cycle)}")

    used = {folder.name: set() for folder in folders}
    for file in sorted(path for path in src.rglob("*") if path.suffix in SOURCES):
        owner = owner_of(file)
        where = file.relative_to(root)
        if owner is None:
            complaints.append(f"{where}:1: no CMakeLists.txt above this file declares a library")
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            included = match[1]
            if ".." in Path(included).parts:
                complaints.append(f'{where}:{number}: "{included}": include by the path from src/, not with ".."')
                continue
            if not (src / included).exists():
                complaints.append(f'{where}:{number}: "{included}": there is no src/{included}; include by the path from '
                                  "src/, and headers from outside with <>")
                continue
            target = owner_of(src / included)
            if target is None or target is owner:
                continue
            used[owner.name].add(target.name)
            if target.name not in owner.depends:
                a, b = (folder.path.relative_to(src) for folder in (owner, target))
                declared = ", ".join(owner.depends) or "nothing"
                complaints.append(f"{where}:{number}: folder {a} may not include folder {b} "
                                  f"(its CMakeLists.txt declares: {declared})")
    for folder in folders:
        for name in folder.depends:
            if name not in used[folder.name]:
                complaints.append(f"{(folder.path / 'CMakeLists.txt').relative_to(root)}:1: folder "
                                  f"{folder.path.relative_to(src)} declares {name} and includes nothing of it")
    return complaints


def self_test():
    """Small trees, each with one thing wrong (or nothing), and what must be said of it."""
    good = {
        "base/CMakeLists.txt": "tutti_library(base LIBRARIES fmt::fmt)", "base/error.h": "#include <string>\n",
        "graph/CMakeLists.txt": "tutti_library(graph DEPENDS base # the values\n LIBRARIES fmt::fmt)",
        "graph/graph.h": '#pragma once\n#include "base/error.h"\n',
        "models/CMakeLists.txt": "tutti_library(models DEPENDS base graph)",
        "models/huggingface/gpt2.cpp": '#include "models/huggingface/gpt2.h"\n#include "base/error.h"\n',
        "models/huggingface/gpt2.h": '#include "graph/graph.h"\n',
        "backend/CMakeLists.txt": "tutti_library(backend DEPENDS graph)\nadd_subdirectory(cpu)",
        "backend/device.h": '#include "graph/graph.h"\n',
        "backend/cpu/CMakeLists.txt": "tutti_library(backend_cpu DEPENDS graph backend)",
        "backend/cpu/gemm.cpp": '#include "backend/device.h"\n#include "graph/graph.h"\n', "backend/cpu/gemm.h": "",
        "cli/CMakeLists.txt": "add_executable(tutti main.cpp)\ntarget_link_libraries(tutti PRIVATE models backend_cpu)",
        "cli/main.cpp": '#include "models/huggingface/gpt2.h"\n#include "backend/cpu/gemm.h"\n',
    }
    cases = [
        ({}, None),
        ({"base/error.h": '\n#include "graph/graph.h"\n'},
         "src/base/error.h:2: folder base may not include folder graph (its CMakeLists.txt declares: nothing)"),
        ({"models/huggingface/gpt2.h": '#include "graph/graph.h"\n#include "backend/device.h"'},
         "src/models/huggingface/gpt2.h:2: folder models may not include folder backend (its CMakeLists.txt declares: base, graph)"),
        ({"backend/device.h": '#include "graph/graph.h"\n#include "backend/cpu/gemm.h"'},
         "src/backend/device.h:2: folder backend may not include folder backend/cpu (its CMakeLists.txt declares: graph)"),
        ({"graph/graph.h": '#include "base/error.h"\n#include "../base/error.h"'}, 'src/graph/graph.h:2: "../base/error.h": include by the path'),
        ({"graph/graph.h": '#include "base/error.h"\n#include "error.h"'}, 'src/graph/graph.h:2: "error.h": there is no src/error.h'),
        ({"base/CMakeLists.txt": "tutti_library(base DEPENDS models)", "base/error.h": '#include "models/huggingface/gpt2.h"\n'},
         "in a circle: base -> models -> base"),
        ({"cli/main.cpp": '#include "models/huggingface/gpt2.h"\n#include "graph/graph.h"\n#include "backend/cpu/gemm.h"\n'},
         "src/cli/main.cpp:2: folder cli may not include folder graph"),  # which models depends on
        ({"models/huggingface/gpt2.cpp": ""}, "src/models/CMakeLists.txt:1: folder models declares base and includes nothing"),
        ({"stray/lost.cpp": ""}, "src/stray/lost.cpp:1: no CMakeLists.txt"),
    ]
    for changes, expected in cases:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (good | changes).items():
                path = Path(folder, "src", name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            complaints = check(Path(folder))
        if expected is None:
            assert complaints == [], complaints
        else:
            assert len(complaints) == 1 and expected in complaints[0], (expected, complaints)
    print(f"check_includes: self-test: {len(cases)} cases pass")


def main(arguments):
    if arguments == ["--self-test"]:
        self_test()
        return 0
    complaints = check(Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent)
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
