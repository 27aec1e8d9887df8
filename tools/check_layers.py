#!/usr/bin/env python3
"""Checks every #include "folder/..." below src/ and include/ against tools/layers.txt."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def read_table():
    table = {}
    for line in (ROOT / "tools/layers.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            folder, _, allowed = line.partition(":")
            table[folder.strip()] = allowed.split()
    return table


def is_allowed(folder, header, allowed):
    target = header.split("/")[0]
    if target == "thalweg":
        target = "include"
    return target in (folder, "base") or "*" in allowed or target in allowed or header in allowed


def violations(table):
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in (".h", ".cc", ".cu", ".cuh"):
            continue
        folder = path.relative_to(ROOT / "src").parts[0]
        if folder not in table:
            yield f"{path.relative_to(ROOT)}: folder {folder} is not in tools/layers.txt"
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = INCLUDE.match(line)
            if found and "/" in found[1] and not is_allowed(folder, found[1], table[folder]):
                yield (f"{path.relative_to(ROOT)}:{number}: {folder} may not include {found[1]}; "
                       f"it may include {' '.join(table[folder]) or 'base only'}")
    for path in sorted((ROOT / "include").rglob("*.h")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = INCLUDE.match(line)
            if found and not found[1].startswith("thalweg/"):
                yield f"{path.relative_to(ROOT)}:{number}: a public header includes {found[1]}"


def main():
    table = read_table()
    found = list(violations(table))
    print("\n".join(found) if found else f"layers: {len(table)} folders in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
