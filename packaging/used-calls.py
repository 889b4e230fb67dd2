#!/usr/bin/env python3
"""Compares the system calls of servers with those that --sandbox allows.

used-calls.py TRACE...: what `strace -D -f -e signal=none -o TRACE onrush serve ...` wrote, of servers
with --sandbox off. A server's calls count until it goes; those of the process that starts
its successors do not. Prints the calls that crates/sys/src/sandbox/calls.rs does not list, and ends
with 1 if there are any; then the calls that it lists and no trace has.

All end-to-end tests at once, as root; the wrapper stands where the tests look for the program:

    cargo test -p onrush --no-run && cd target/debug && mv onrush onrush.real && mkdir /tmp/traces
    printf '#!/bin/sh\\nexec strace -D -f -qq -e signal=none -o /tmp/traces/$$ %s "$@"\\n' \\
        "$PWD/onrush.real" > onrush && chmod +x onrush
    ONRUSH_SANDBOX=off cargo test -p onrush -- --test-threads=1; mv onrush.real onrush
    packaging/used-calls.py /tmp/traces/*
"""

import os
import re
import sys

CALLS = os.path.join(os.path.dirname(__file__), "../crates/sys/src/sandbox/calls.rs")
# Made before the sandbox is entered, or by the process that starts successors.
EARLIER = {"execve", "vfork", "wait4", "waitid", "pidfd_open"}
# As an strace calls them that does not know them yet.
NEWER = {"syscall_0x1c3": "cachestat"}


def main(traces):
    with open(CALLS, encoding="utf-8") as source:
        text = source.read().split("#[cfg(test)]")[0]
    listed = {name.lower() for name in re.findall(r"\bSYS_(\w+)", text)}
    made = set()
    for trace in traces:
        with open(trace, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                call = re.match(r"(?:\d+ +)?([a-z0-9_]+)\(", line)
                if call:
                    made.add(NEWER.get(call.group(1), call.group(1)))
    if not made:
        sys.exit("no trace has a system call")
    missing = sorted(made - listed - EARLIER)
    print("not allowed:", " ".join(missing) or "none")
    print("not seen:", " ".join(sorted(listed - made)))
    sys.exit(1 if missing else 0)


main(sys.argv[1:])
