"""Decodes the tracks of a film with GStreamer by RTSP over UDP, and says how many buffers came of each.

usage: decode.py URI whole|tracks MEDIUM=ELEMENT...

What GStreamer warns of or fails at is told in a line of its own, with WARN or ERROR in front. A medium
is video or audio; what has no element is thrown away. A whole stream is decodebin's.
gst-launch-1.0 links the branches of two tracks that come at once in each other's place now and then,
and waits for ever.
"""

import sys

import gi

gi.require_version("Gst", "1.0")
from gi.repository import Gst

# Far more than a slow machine takes for a film of seconds.
PATIENCE_S = 90


def main(uri, is_whole, branches):
    Gst.init(None)
    pipeline = Gst.Pipeline()
    source = Gst.ElementFactory.make("rtspsrc")
    # Deep enough that a busy machine is not taken for a lossy network.
    for name, value in (("location", uri), ("protocols", "udp"), ("latency", "3000")):
        Gst.util_set_object_arg(source, name, value)
    pipeline.add(source)
    came = dict.fromkeys(branches, 0)

    def attach(pad, element):
        pipeline.add(element)
        element.sync_state_with_parent()
        pad.link(element.get_static_pad("sink"))

    def show(pad, medium, element=""):
        element = element and element + " ! "
        branch = element + "queue ! fakesink name=end sync=false async=false"
        branch = Gst.parse_bin_from_description(branch, True)

        def count(_pad, _info):
            came[medium] += 1
            return Gst.PadProbeReturn.OK

        branch.get_by_name("end").get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, count)
        attach(pad, branch)

    def decoded(_decoder, pad):
        show(pad, pad.get_current_caps().get_structure(0).get_name().split("/")[0])

    def add(_source, pad):
        medium = pad.get_current_caps().get_structure(0).get_string("media")
        if is_whole or branches[medium] == "decodebin":
            decoder = Gst.ElementFactory.make("decodebin")
            decoder.connect("pad-added", decoded)
            attach(pad, decoder)
        else:
            show(pad, medium, branches[medium])

    source.connect("pad-added", add)
    pipeline.set_state(Gst.State.PLAYING)
    bus = pipeline.get_bus()
    wanted = Gst.MessageType.EOS | Gst.MessageType.ERROR | Gst.MessageType.WARNING
    while message := bus.timed_pop_filtered(PATIENCE_S * Gst.SECOND, wanted):
        if message.type == Gst.MessageType.EOS:
            break
        if message.type == Gst.MessageType.WARNING:
            print("WARN", message.src.get_name(), *message.parse_warning())
            continue
        print("ERROR", message.src.get_name(), *message.parse_error())
        break
    else:
        print("ERROR: no end after", PATIENCE_S, "s")
    for medium, count in came.items():
        print(medium, count)
    pipeline.set_state(Gst.State.NULL)


main(sys.argv[1], sys.argv[2] == "whole", dict(it.split("=", 1) for it in sys.argv[3:]))
