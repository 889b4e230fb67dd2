"""How many rows of two runs of `onrush-lab measure` agree, that is, have intervals that meet; and the others.

    agree.py full-7.json full-11.json
"""

import json
import sys


def rows(name):
    with open(name, encoding="utf-8") as file:
        runs = json.load(file)["runs"]
    return {run["id"]: run["measured"]["interval"] for run in runs if run["entry"] == "row"}


first, second = map(rows, sys.argv[1:3])
apart = [row for row, (low, high) in first.items() if low > second[row][1] or high < second[row][0]]
print(len(first) - len(apart), "of", len(first), "agree; apart:", ", ".join(apart) or "none")
