#!/bin/sh
# Makes demo.ts, the clip that `onrush serve` serves when it is given no directory: 24 s of a test
# picture with a running clock, and a tone that beeps every second, as MPEG-TS at a constant 1 Mbit/s.
#
# The same ffmpeg makes the same bytes every time (-bitexact, one encoder thread); another version
# may not. The clip in the tree was made by ffmpeg 5.1 of Debian 12.
#
# usage: media/make-demo.sh [FILE]
set -eu

out=${1:-$(dirname "$0")/demo.ts}

# One closed GOP a second, so that every second is a seek point. The HRD model keeps each second of
# video under its share of the mux rate, so that no PCR slips.
exec ffmpeg -hide_banner -loglevel error -y \
    -f lavfi -i testsrc2=size=640x360:rate=25 \
    -f lavfi -i sine=frequency=440:beep_factor=4:sample_rate=48000 \
    -t 24 -map 0:v -map 1:a -map_metadata -1 -bitexact \
    -c:v libx264 -threads 1 -profile:v main -pix_fmt yuv420p -preset slow \
    -b:v 700k -maxrate 700k -bufsize 350k \
    -x264-params nal-hrd=vbr:keyint=25:min-keyint=25:scenecut=0:open-gop=0:bframes=2 \
    -c:a aac -b:a 96k -ac 2 \
    -metadata service_name="Onrush demo" -metadata service_provider="Onrush" \
    -f mpegts -muxrate 1M -pcr_period 20 -pat_period 0.1 -sdt_period 0.5 \
    "$out"
