"""A file system in the small: what is on disk when a machine stops after some of a run's calls.

A write goes into a file, a name into a folder; both are sure once the file, or the folder, was synced:

    write "ab"       file:   ab            a crash now leaves any of   (nothing), a_, _b, ab
    fsync            file:   AB            sure
    write "cd"       file:   AB cd
    rename f.tmp f   folder: f.tmp -> f    a crash now leaves f.tmp or f, and in it AB with or without c and d
    fsync folder     folder: F             sure: f

What is not sure is lost or kept by each write and each name on its own, in any combination: no file system promises
less. A rename is one thing: never are both of its names there, nor none.
"""
import os
import random
from dataclasses import dataclass, field
from pathlib import PurePosixPath

BLOCK = 4096  # of a write, what is lost or kept as one


@dataclass
class File:
    writes: list = field(default_factory=list)  # (offset, bytes), or (size, None) where it is cut or grows
    synced: int = 0  # how many of them are sure

    def content(self, keeps):
        data = bytearray()
        for number, (offset, piece) in enumerate(self.writes):
            if number >= self.synced and not keeps():
                continue
            size = offset + len(piece) if piece is not None else offset
            if piece is None:
                del data[size:]
            data.extend(bytes(max(0, size - len(data))))
            if piece is not None:
                data[offset:size] = piece
        return bytes(data)

    def size(self):
        return len(self.content(lambda: True))

    def write(self, offset, data):
        """In blocks, as they go to disk."""
        while data:
            length = BLOCK - offset % BLOCK
            self.writes.append((offset, data[:length]))
            offset, data = offset + length, data[length:]


@dataclass(eq=False)
class Folder:
    pass


@dataclass
class Naming:
    """Names that are taken out of folders and put into folders at once."""
    removed: list  # (folder, name)
    added: list  # (folder, name, file or folder)
    is_sure: bool = False

    def touches(self, folder):
        return any(one[0] is folder for one in self.removed + self.added)


def keep_all():
    return True


def keep_none():
    return False


def keep_some(seed):
    chance = random.Random(seed)
    return lambda: chance.random() < 0.5


class Disk:
    """All that is under `root`, from what is there now on."""

    def __init__(self, root):
        self.root = str(root)
        self.top, self.namings, self.open = Folder(), [], {}
        self._load(self.root, self.top)

    def _load(self, path, folder):
        for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
            node = Folder()
            if not entry.is_dir():
                with open(entry.path, "rb") as file:
                    node = File([(0, file.read())], 1)
            self.namings.append(Naming([], [(folder, entry.name, node)], True))
            if entry.is_dir():
                self._load(entry.path, node)

    def names(self, keeps=keep_all):
        """What each folder holds."""
        found = {}
        for naming in self.namings:
            if not naming.is_sure and not keeps():
                continue
            for folder, name in naming.removed:
                found.get(folder, {}).pop(name, None)
            for folder, name, node in naming.added:
                found.setdefault(folder, {})[name] = node
        return found

    def _place(self, path):
        """The folder that holds a path, and the last name of it."""
        parts = PurePosixPath(os.path.normpath(path)).relative_to(self.root).parts
        names, folder = self.names(), self.top
        for part in parts[:-1]:
            folder = names[folder][part]
        return folder, parts[-1] if parts else "", names.get(folder, {}).get(parts[-1]) if parts else self.top

    def _name(self, removed, added):
        self.namings.append(Naming(removed, added))

    def apply(self, record):
        """One more call of a run."""
        key, path = (record.rank, record.descriptor), record.payload.decode() if record.call not in ("write", "rename") else ""
        if record.call == "open":
            folder, name, node = self._place(path)
            if node is None:
                node = File()
                self._name([], [(folder, name, node)])
            elif record.offset & os.O_TRUNC:
                node.writes.append((0, None))
            self.open[key] = node
        elif record.call == "write":
            self.open[key].write(record.offset, record.payload)
        elif record.call == "truncate":
            self.open[key].writes.append((record.offset, None))
        elif record.call == "allocate":
            if record.offset > self.open[key].size():
                self.open[key].writes.append((record.offset, b""))
        elif record.call == "fsync":
            self._sync(self.open[key])
        elif record.call == "rename":
            self._rename(*record.payload.decode().split("\0"))
        elif record.call == "mkdir":
            folder, name, _ = self._place(path)
            self._name([], [(folder, name, Folder())])
        elif record.call in ("unlink", "rmdir"):
            folder, name, _ = self._place(path)
            self._name([(folder, name)], [])

    def _rename(self, before, after):
        folder, name, node = self._place(before)
        target, new_name, _ = self._place(after)
        self._name([(folder, name)], [(target, new_name, node)])

    def _sync(self, node):
        if isinstance(node, File):
            node.synced = len(node.writes)
        else:
            for naming in self.namings:
                naming.is_sure = naming.is_sure or naming.touches(node)

    def tree(self, keeps=keep_all):
        """Path -> bytes, or None for a folder: what is there after a crash that keeps what it keeps."""
        names, found = self.names(keeps), {}

        def walk(folder, path):
            for name, node in sorted(names.get(folder, {}).items()):
                where = f"{path}{name}"
                found[where] = None if isinstance(node, Folder) else node.content(keeps)
                if isinstance(node, Folder):
                    walk(node, where + "/")

        walk(self.top, "")
        return found


def read_tree(root):
    """The same of a folder that there is."""
    found = {}
    for path, folders, files in os.walk(root):
        for name in folders + files:
            whole = os.path.join(path, name)
            where = os.path.relpath(whole, root)
            if name in folders:
                found[where] = None
            else:
                with open(whole, "rb") as file:
                    found[where] = file.read()
    return found


def write_tree(root, tree):
    """Makes a folder hold these and nothing else."""
    for path, folders, files in os.walk(root, topdown=False):
        for name in files:
            os.unlink(os.path.join(path, name))
        for name in folders:
            os.rmdir(os.path.join(path, name))
    for where, data in sorted(tree.items()):
        path = os.path.join(root, where)
        if data is None:
            os.mkdir(path)
        else:
            with open(path, "wb") as file:
                file.write(data)
