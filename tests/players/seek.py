"""Plays a film with GStreamer, seeks in it, and says what is seen: a line for each place.

usage: seek.py [--strict] URI SECOND...

With --strict the first warning of any element ends it, with what the warning says.

Each frame of the film says by eight bars in which second of it it is. A line is the second that was
asked for, `start` for the beginning, and the seconds that were seen from then on, in order, until
SEEN of them were.
"""

import queue
import sys
import time

import gi

gi.require_version("Gst", "1.0")
from gi.repository import Gst

SEEN = 3
# Far more than a slow machine takes.
PATIENCE_S = 40
POLL_S = 0.1


def second_of(frame):
    """What the bars say, halfway down the picture."""
    width, height = 64, 32
    line = frame[height // 2 * width:]
    return sum(1 << bit for bit in range(8) if line[bit * 8 + 4] > 128)


def main(is_strict, uri, places):
    Gst.init(None)
    pipeline = Gst.parse_launch(
        f"uridecodebin name=film uri={uri} "
        "film. ! queue ! videoconvert ! video/x-raw,format=GRAY8 "
        "! fakesink name=picture sync=true signal-handoffs=true "
        "film. ! queue ! audioconvert ! fakesink sync=true"
    )
    seconds = queue.Queue()

    def handoff(_sink, frame, _pad):
        found, memory = frame.map(Gst.MapFlags.READ)
        if found:
            seconds.put(second_of(bytes(memory.data)))
            frame.unmap(memory)

    pipeline.get_by_name("picture").connect("handoff", handoff)
    pipeline.set_state(Gst.State.PLAYING)
    watch("start", seconds, pipeline, is_strict)
    for place in places:
        flags = Gst.SeekFlags.FLUSH | Gst.SeekFlags.KEY_UNIT
        # Returns when everything of the old place is flushed.
        if not pipeline.seek_simple(Gst.Format.TIME, flags, int(place) * Gst.SECOND):
            sys.exit(f"the seek to {place} was refused")
        while not seconds.empty():
            seconds.get()
        watch(place, seconds, pipeline, is_strict)
    pipeline.set_state(Gst.State.NULL)


def watch(place, seconds, pipeline, is_strict):
    seen, heard = [], time.monotonic()
    while len(seen) < SEEN:
        if is_strict:
            end_at_warning(place, pipeline)
        try:
            second = seconds.get(timeout=POLL_S)
        except queue.Empty:
            if time.monotonic() - heard < PATIENCE_S:
                continue
            message = pipeline.get_bus().pop_filtered(Gst.MessageType.ERROR)
            print(message.parse_error() if message else "no error", flush=True)
            break
        heard = time.monotonic()
        if not seen or seen[-1] != second:
            seen.append(second)
    print(place, *seen, flush=True)


def end_at_warning(place, pipeline):
    message = pipeline.get_bus().pop_filtered(Gst.MessageType.WARNING)
    if message:
        error, detail = message.parse_warning()
        sys.exit(f"at {place}: {message.src.get_name()} warns: {error.message} ({detail})")


if sys.argv[1] == "--strict":
    main(True, sys.argv[2], sys.argv[3:])
else:
    main(False, sys.argv[1], sys.argv[2:])
