#!/usr/bin/env python3
"""Prints the system calls of a program that a unit's filter would refuse.

refused-calls.py STRACE UNIT: what `strace -f` wrote, from the moment on at which onrush is executed,
and the unit whose SystemCallFilter= names system calls and systemd's sets of them.
"""

import re
import subprocess
import sys


def members(name, sets):
    if not name.startswith("@"):
        yield name
        return
    for entry in sets[name]:
        if entry.startswith("@"):
            yield from members(entry, sets)
        else:
            yield entry


def systemd_sets():
    listed = subprocess.run(
        ["systemd-analyze", "syscall-filter"], check=True, capture_output=True, text=True
    ).stdout
    sets, current = {}, None
    for line in re.sub(r"\x1b\[[0-9;]*m", "", listed).splitlines():
        word = line.strip()
        if line.startswith("@"):
            current = sets.setdefault(word, [])
        elif current is not None and word and not word.startswith("#"):
            current.append(word)
    return sets


def filters(unit):
    allowed, refused = [], []
    with open(unit, encoding="utf-8") as lines:
        for line in lines:
            key, _, value = line.strip().partition("=")
            if key == "SystemCallFilter":
                (refused if value.startswith("~") else allowed).extend(value.lstrip("~").split())
    return allowed, refused


def main(trace, unit):
    sets = systemd_sets()
    allowed, refused = ({call for name in names for call in members(name, sets)} for names in filters(unit))
    # What systemd always permits (systemd.exec(5)).
    passes = (allowed | {*members("@default", sets)}) - refused
    made, has_begun = set(), False
    with open(trace, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            has_begun = has_begun or 'execve("/usr/bin/onrush"' in line
            call = re.match(r"\d+ +([a-z0-9_]+)\(", line)
            if has_begun and call:
                made.add(call.group(1))
    if not made:
        sys.exit(f"{trace} has no system call of onrush")
    print(" ".join(sorted(made - passes)))


main(*sys.argv[1:])
