#!/usr/bin/env python3
"""What the model of a disk says is left after a crash, in cases worked out by hand."""
import os
import tempfile
import unittest

from disk import Disk, keep_all, keep_none
from journal import Record

NEW = os.O_CREAT | os.O_WRONLY


class DiskTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = os.path.realpath(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def disk(self, *calls):
        """After calls of (name, descriptor, offset, payload); paths in payloads are below the root."""
        disk = Disk(self.root)
        for call, descriptor, offset, payload in calls:
            paths = [part if call == "write" else f"{self.root}/{part}" for part in payload.split("\0")]
            payload = "\0".join(paths).encode() if payload or call == "open" else b""
            disk.apply(Record(call, -1, descriptor, offset, payload))
        return disk

    def test_what_was_not_synced_is_lost(self):
        disk = self.disk(("open", 3, NEW, "f"), ("write", 3, 0, "ab"))
        self.assertEqual(disk.tree(keep_all), {"f": b"ab"})
        self.assertEqual(disk.tree(keep_none), {})

    def test_a_synced_file_needs_a_synced_folder(self):
        calls = [("open", 3, NEW, "f"), ("write", 3, 0, "ab"), ("fsync", 3, 0, "")]
        self.assertEqual(self.disk(*calls).tree(keep_none), {})
        calls += [("open", 4, os.O_RDONLY, ""), ("fsync", 4, 0, "")]
        self.assertEqual(self.disk(*calls).tree(keep_none), {"f": b"ab"})

    def test_a_file_that_was_not_synced_before_its_rename_may_be_empty(self):
        disk = self.disk(("open", 3, NEW, "f.tmp"), ("write", 3, 0, "ab"), ("rename", -1, 0, "f.tmp\0f"),
                         ("open", 4, os.O_RDONLY, ""), ("fsync", 4, 0, ""))
        self.assertEqual(disk.tree(keep_none), {"f": b""})

    def test_a_rename_leaves_one_of_its_names(self):
        with open(f"{self.root}/f", "w") as file:
            file.write("old")
        calls = [("open", 3, NEW, "f.tmp"), ("write", 3, 0, "new"), ("fsync", 3, 0, ""), ("rename", -1, 0, "f.tmp\0f")]
        self.assertEqual(self.disk(*calls).tree(keep_none), {"f": b"old"})
        self.assertEqual(self.disk(*calls).tree(keep_all), {"f": b"new"})

    def test_names_in_a_lost_folder_are_lost(self):
        disk = self.disk(("mkdir", -1, 0, "d"), ("open", 3, NEW, "d/f"), ("open", 4, os.O_RDONLY, "d"), ("fsync", 4, 0, ""))
        self.assertEqual(disk.tree(keep_none), {})
        self.assertEqual(disk.tree(keep_all), {"d": None, "d/f": b""})

    def test_a_later_write_without_an_earlier_one_leaves_zeros(self):
        keeps = iter([True, False, True])  # the name, the first block and the second
        disk = self.disk(("open", 3, NEW, "f"), ("write", 3, 0, "a" * 4096), ("write", 3, 4096, "b"))
        self.assertEqual(disk.tree(lambda: next(keeps)), {"f": bytes(4096) + b"b"})

    def test_an_unlinked_file_comes_back(self):
        with open(f"{self.root}/f", "w") as file:
            file.write("old")
        disk = self.disk(("unlink", -1, 0, "f"))
        self.assertEqual(disk.tree(keep_none), {"f": b"old"})
        self.assertEqual(disk.tree(keep_all), {})


if __name__ == "__main__":
    unittest.main()
