#!/usr/bin/env python3
"""gst-rtsp-server as a peer: stored films, a pipeline for each client.

usage: gst-rtsp-server.py ADDRESS:PORT DIRECTORY

Serves DIRECTORY/FILE at rtsp://ADDRESS:PORT/FILE as RTP of transport stream packets (RFC 2250), as
gst-rtsp-server's own examples do: filesrc, tsparse for the times, rtpmp2tpay. An MP4 of H.264 and AAC
goes as two tracks: qtdemux, then rtph264pay and rtpmp4gpay.
Debian: gir1.2-gst-rtsp-server-1.0 python3-gi gstreamer1.0-plugins-good gstreamer1.0-plugins-bad
"""
import os
import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402

Gst.init(None)
(address, port), directory = sys.argv[1].rsplit(":", 1), sys.argv[2]
server = GstRtspServer.RTSPServer.new()
server.set_address(address)
server.set_service(port)
server.set_backlog(1024)
# Threads for clients' pipelines and connections, beside the streaming thread that each pipeline has.
pool = GstRtspServer.RTSPThreadPool.new()
pool.set_max_threads(4)
server.set_thread_pool(pool)
sessions = GstRtspServer.RTSPSessionPool.new()
sessions.set_max_sessions(0)
server.set_session_pool(sessions)


def pipeline(path):
    """What sends the film, as gst-launch writes it."""
    if path.endswith(".mp4"):
        return (
            f'( filesrc location="{path}" ! qtdemux name=demux '
            "demux.video_0 ! queue ! h264parse ! rtph264pay pt=96 config-interval=-1 name=pay0 "
            "demux.audio_0 ! queue ! aacparse ! rtpmp4gpay pt=97 name=pay1 )"
        )
    return (
        f'( filesrc location="{path}" ! tsparse set-timestamps=true alignment=7 '
        "! rtpmp2tpay pt=33 name=pay0 )"
    )


for name in os.listdir(directory):
    factory = GstRtspServer.RTSPMediaFactory.new()
    factory.set_launch(pipeline(f"{directory}/{name}"))
    factory.set_shared(False)
    server.get_mount_points().add_factory(f"/{name}", factory)
server.attach(None)
GLib.MainLoop().run()
