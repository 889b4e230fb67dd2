"""Receives a film with GStreamer by RTSP over TCP, and says what came: a line for each frame.

usage: receive.py URI [SECOND]

With a place it plays from the beginning until WATCHED buffers have come, jumps there, and tells what
comes from then on. The lines are those of receive.c: "stream" for each track, "key" and "coded" for
frames, of H.264 without parameter sets, and of a transport stream "bytes" with all of it.
"""

import hashlib
import re
import sys
import threading

import gi

gi.require_version("Gst", "1.0")
from gi.repository import Gst

WATCHED = 40
# Far more than a slow machine takes for a film of seconds.
PATIENCE_S = 90

# By the encoding name of SDP: which medium it is, and what takes its packets apart.
TRACKS = {
    "H264": ("video", "rtph264depay ! video/x-h264,stream-format=byte-stream,alignment=au"),
    "MPEG4-GENERIC": ("audio", "rtpmp4gdepay"),
    "MP2T": ("video", "rtpmp2tdepay"),
}


class Track:
    """What came of a track since it was flushed last."""

    def __init__(self, encoding):
        self.encoding, self.buffers = encoding, []

    def say(self, number):
        medium, _ = TRACKS[self.encoding]
        print("stream", number, medium, self.encoding)
        if self.encoding == "MP2T":
            everything = b"".join(data for _, data in self.buffers)
            print("bytes", number, "-", len(everything), everything.hex())
            return
        for is_key, data in self.buffers:
            if self.encoding == "H264":
                data = without_sets(data)
            kind = "key" if is_key else "coded"
            print(kind, number, "-", len(data), hashlib.md5(data).hexdigest())


def without_sets(data):
    """The NAL units but for parameter sets, each with a start code of three bytes in front."""
    units = [unit.rstrip(b"\0") for unit in re.split(b"\0\0\1", data)[1:]]
    return b"".join(b"\0\0\1" + unit for unit in units if unit and unit[0] & 31 not in (7, 8))


def main(uri, place):
    Gst.init(None)
    pipeline = Gst.Pipeline()
    source = Gst.ElementFactory.make("rtspsrc")
    for name, value in (("location", uri), ("protocols", "tcp"), ("latency", "3000")):
        Gst.util_set_object_arg(source, name, value)
    pipeline.add(source)
    tracks, watched, seen = [], threading.Semaphore(0), [0]

    def add(_source, pad):
        encoding = pad.get_current_caps().get_structure(0).get_string("encoding-name")
        track = Track(encoding)
        tracks.append(track)
        branch = TRACKS[encoding][1] + " ! fakesink name=end sync=false"
        branch = Gst.parse_bin_from_description("queue ! " + branch, True)

        # In front of the sink: it drops what it takes to be behind the end that SDP tells, and
        # times are those of arrival.
        def come(_pad, info):
            buffer = info.get_buffer()
            data = buffer.extract_dup(0, buffer.get_size())
            track.buffers.append((not buffer.has_flags(Gst.BufferFlags.DELTA_UNIT), data))
            seen[0] += 1
            if seen[0] == WATCHED:
                watched.release()
            return Gst.PadProbeReturn.OK

        def event(_pad, info):
            # What came before is of the old place.
            if info.get_event().type == Gst.EventType.FLUSH_STOP:
                track.buffers.clear()
            return Gst.PadProbeReturn.OK

        end = branch.get_by_name("end").get_static_pad("sink")
        end.add_probe(Gst.PadProbeType.BUFFER, come)
        end.add_probe(Gst.PadProbeType.EVENT_FLUSH, event)
        pipeline.add(branch)
        branch.sync_state_with_parent()
        pad.link(branch.get_static_pad("sink"))

    source.connect("pad-added", add)
    pipeline.set_state(Gst.State.PLAYING)
    if place is not None:
        if not watched.acquire(timeout=PATIENCE_S):
            sys.exit("nothing comes")
        flags = Gst.SeekFlags.FLUSH | Gst.SeekFlags.KEY_UNIT
        if not pipeline.seek_simple(Gst.Format.TIME, flags, round(place * Gst.SECOND)):
            sys.exit("the seek was refused")
    wanted = Gst.MessageType.EOS | Gst.MessageType.ERROR
    message = pipeline.get_bus().timed_pop_filtered(PATIENCE_S * Gst.SECOND, wanted)
    if message is None or message.type == Gst.MessageType.ERROR:
        sys.exit(f"no end: {message and message.parse_error()}")
    for number, track in enumerate(tracks):
        track.say(number)
    pipeline.set_state(Gst.State.NULL)


main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else None)
