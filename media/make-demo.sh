#!/bin/sh
# Makes the clips that `onrush serve` serves when it is given no directory:
#
#   demo.ts   24 s of a test picture with a running clock, and a tone that beeps every second, as
#             MPEG-TS at a constant 1 Mbit/s
#   demo.mp4  24 s of another test picture with a clock, and a quiet melody: H.264 with B frames and
#             AAC, in tables at the front of the file
#
# The same ffmpeg makes the same bytes every time (-bitexact, one encoder thread); another version
# may not. The clips in the tree were made by ffmpeg 5.1 of Debian 12.
#
# usage: media/make-demo.sh [FOLDER]
set -eu

out=${1:-$(dirname "$0")}

run() {
    ffmpeg -hide_banner -loglevel error -y "$@"
}

# One closed GOP a second, so that every second is a seek point. The HRD model keeps each second of
# video under its share of the mux rate, so that no PCR slips.
run -f lavfi -i testsrc2=size=640x360:rate=25 \
    -f lavfi -i sine=frequency=440:beep_factor=4:sample_rate=48000 \
    -t 24 -map 0:v -map 1:a -map_metadata -1 -bitexact \
    -c:v libx264 -threads 1 -profile:v main -pix_fmt yuv420p -preset slow \
    -b:v 700k -maxrate 700k -bufsize 350k \
    -x264-params nal-hrd=vbr:keyint=25:min-keyint=25:scenecut=0:open-gop=0:bframes=2 \
    -c:a aac -b:a 96k -ac 2 \
    -metadata service_name="Onrush demo" -metadata service_provider="Onrush" \
    -f mpegts -muxrate 1M -pcr_period 20 -pat_period 0.1 -sdt_period 0.5 \
    "$out/demo.ts"

# A note each half second, that many semitones above A3, and a low one under each four: ld(0) is the
# time since the note began, ld(1) its frequency.
note='st(0,mod(t,0.5)); st(2,mod(floor(t*2),8));
    st(1,220*pow(2,(4*eq(ld(2),1)+7*eq(ld(2),2)+12*eq(ld(2),3)+9*eq(ld(2),4)+7*eq(ld(2),5)
    +4*eq(ld(2),6)+2*eq(ld(2),7))/12));
    0.22*(1-exp(-300*ld(0)))*exp(-5*ld(0))*(sin(2*PI*ld(1)*ld(0))+0.3*sin(4*PI*ld(1)*ld(0)))'
bass='st(3,mod(t,2)); 0.18*(1-exp(-200*ld(3)))*exp(-1.5*ld(3))*sin(2*PI*110*ld(3))'
left="$note + ($bass)"
right="$note * 0.8 + ($bass)"

run -f lavfi -i testsrc=size=640x360:rate=25 \
    -f lavfi -i "aevalsrc='$left|$right':sample_rate=48000" \
    -t 24 -map 0:v -map 1:a -map_metadata -1 -bitexact \
    -c:v libx264 -threads 1 -profile:v high -pix_fmt yuv420p -preset slow -crf 20 \
    -x264-params keyint=25:min-keyint=25:scenecut=0:open-gop=0:bframes=2:b-adapt=0 \
    -c:a aac -b:a 96k -ac 2 -metadata:s:a language=eng \
    -f mp4 -movflags +faststart \
    "$out/demo.mp4"
