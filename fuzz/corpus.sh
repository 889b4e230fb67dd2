#!/bin/bash
# Makes the films that fuzzing begins with, in fuzz/seeds: every container with every codec that
# ffmpeg has, a few KB each. They are in the tree, so that the tests need no ffmpeg; run this when a
# codec or a container is added, and commit what is new.
#
#   fuzz/corpus.sh          makes those that are missing
#
# Ends with 0 when all were made, 1 when ffmpeg could not make some, which are named.
set -euo pipefail

cd "$(dirname "$0")/seeds"
mkdir -p mp4 matroska ts

failed=0

# film FILE ARGUMENT...: a quarter of a second of pictures and sound.
film() {
    local file=$1
    shift
    made "$file" \
        -f lavfi -i testsrc=size=64x48:rate=12:duration=0.34 \
        -f lavfi -i sine=frequency=300:sample_rate=48000:duration=0.3 \
        -pix_fmt yuv420p -b:v 40k -b:a 32k "$@"
}

# subtitled FILE SUBTITLES ARGUMENT...: a few pictures and a file of subtitles.
subtitled() {
    local file=$1 format=$2 subtitles=$3
    shift 3
    made "$file" \
        -f lavfi -i testsrc=size=64x48:rate=2:duration=2 -f "$format" -i "$subtitles" \
        -map 0 -map 1 -metadata:s:s:0 language=eng -metadata:s:s:0 title=Told \
        -pix_fmt yuv420p -b:v 40k "$@"
}

# made FILE ARGUMENT...
made() {
    local file=$1
    shift
    [ ! -e "$file" ] || return 0
    if ! ffmpeg -hide_banner -loglevel error -y \
        "$@" -map_metadata -1 -fflags +bitexact -flags +bitexact "$file" </dev/null; then
        echo "ffmpeg cannot make $file" >&2
        rm -f "$file"
        failed=1
    fi
}

H264="-c:v libx264 -preset veryfast -g 3 -x264-params no-info=1"
H265="-c:v libx265 -preset ultrafast -x265-params log-level=none:info=0:keyint=3"

# shellcheck disable=SC2086 # lists of words
containers() {
    film mp4/h264-aac.mp4 $H264 -bf 2 -c:a aac
    film mp4/h264-aac-first.mp4 $H264 -c:a aac -movflags faststart
    film mp4/h264-fragments.mp4 $H264 -c:a aac -movflags frag_keyframe+empty_moov+default_base_moof
    film mp4/h264-fragments-old.mp4 $H264 -bf 1 -c:a aac -movflags frag_keyframe
    film mp4/h264-negative.mp4 $H264 -bf 2 -an -movflags negative_cts_offsets+dash
    film mp4/h264-edits.mov $H264 -bf 2 -c:a pcm_s16be -ar 8000 -ss 0.1
    film mp4/h265-eac3.mp4 $H265 -tag:v hvc1 -c:a eac3
    film mp4/av1-opus.mp4 -s 64x64 -c:v libsvtav1 -preset 12 -g 3 -c:a libopus
    film mp4/vp9-mp3.mp4 -c:v libvpx-vp9 -c:a libmp3lame
    film mp4/mpeg4-ac3.mp4 -c:v mpeg4 -g 3 -c:a ac3
    film mp4/mpeg2-alac.mp4 -c:v mpeg2video -r 25 -g 3 -c:a alac -t 0.1
    film mp4/jpeg-ulaw.mov -c:v mjpeg -pix_fmt yuvj420p -an
    film mp4/ulaw.mov -vn -c:a pcm_mulaw -ar 8000
    film mp4/pcm24.mov -vn -c:a pcm_s24be -t 0.02
    film mp4/timecode.mov $H264 -an -timecode 01:00:00:00
    subtitled mp4/timed-text.mp4 srt subtitles/srt $H264 -c:s mov_text

    film matroska/h264-aac.mkv $H264 -bf 2 -c:a aac
    film matroska/h264-live.mkv $H264 -c:a aac -live 1
    film matroska/h265-eac3.mkv $H265 -c:a eac3
    film matroska/vp8-vorbis.webm -c:v libvpx -c:a libvorbis
    film matroska/vp9-opus.webm -c:v libvpx-vp9 -c:a libopus
    film matroska/av1-opus.webm -s 64x64 -c:v libsvtav1 -preset 12 -g 3 -c:a libopus
    film matroska/mpeg4-mp3.mkv -c:v mpeg4 -g 3 -c:a libmp3lame
    film matroska/mpeg2-ac3.mkv -c:v mpeg2video -r 25 -g 3 -c:a ac3
    film matroska/jpeg-pcm.mkv -c:v mjpeg -pix_fmt yuvj420p -c:a pcm_s16be -t 0.1
    film matroska/ulaw.mkv -vn -c:a pcm_mulaw -ar 8000
    film matroska/cluster.mkv $H264 -c:a aac -cluster_time_limit 80 -write_crc32 0
    film matroska/dash.webm -c:v libvpx-vp9 -an -dash 1
    subtitled matroska/subrip.mkv srt subtitles/srt $H264 -c:s copy
    subtitled matroska/webvtt.webm webvtt subtitles/vtt -c:v libvpx -c:s copy
    subtitled matroska/ass.mkv ass subtitles/ass $H264 -c:s copy

    film ts/h264-aac.ts $H264 -bf 1 -c:a aac
    film ts/h265-ac3.ts $H265 -c:a ac3
    film ts/mpeg2-mp2.ts -c:v mpeg2video -r 25 -g 3 -c:a mp2
    film ts/constant.ts $H264 -c:a aac -muxrate 300k -t 0.2
    film ts/h264.m2ts $H264 -an
    film ts/sound.ts -vn -c:a aac
    film ts/mpeg4-latm.ts -c:v mpeg4 -g 3 -c:a aac -mpegts_flags latm
    film ts/opus.ts -vn -c:a libopus
    film ts/eac3.ts -vn -c:a eac3
}

containers
exit $failed
