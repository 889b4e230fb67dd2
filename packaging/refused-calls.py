#!/usr/bin/env python3
"""Prints the system calls of a program that a unit's filter would refuse.

refused-calls.py STRACE ALLOWED REFUSED: what `strace -f` wrote, from the moment on at which onrush
is executed, and the sets of systemd that SystemCallFilter= names, as in @system-service @privileged.
"""

import re
import subprocess
import sys


def members(name, sets):
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


def main(trace, allowed, refused):
    sets = systemd_sets()
    # What systemd always permits (systemd.exec(5)).
    passes = {*members(allowed, sets), *members("@default", sets)} - {*members(refused, sets)}
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
