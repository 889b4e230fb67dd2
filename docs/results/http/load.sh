#!/bin/bash
# Viewers of one channel on one processor, 4 Mbit/s each, by low-latency HLS. As root, on a machine with two processors and
# nothing else to do, from the root of a tree built with `cargo build --release -p onrush -p onrush-lab`:
#
#   docs/results/http/load.sh FOLDER [VIEWERS]
#
# The server is in a namespace on CPU 0, publisher and viewers are on CPU 1; FOLDER/load-hls.json is kept.
set -eu
tree=. out=$1 viewers=${2:-5000}
mkdir -p "$out"; out=$(realpath "$out")
server="ip netns exec onrush-s taskset -c 0" load="ip netns exec onrush-l taskset -c 1"
pids=()
clean() { for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done; wait || true
  ip netns del onrush-s 2>/dev/null || true; ip netns del onrush-l 2>/dev/null || true; }
trap clean EXIT
ip netns add onrush-s; ip netns add onrush-l
ip link add os type veth peer name ol
ip link set os netns onrush-s; ip link set ol netns onrush-l
ip -n onrush-s addr add 10.88.0.1/16 dev os; ip -n onrush-l addr add 10.88.0.2/16 dev ol
for x in "s os" "l ol"; do set -- $x; ip -n onrush-$1 link set lo up; ip -n onrush-$1 link set $2 up; done
# Linux's usual congestion control, whatever this machine has: bbr sets a timer for each train that leaves.
ip -n onrush-s route replace 10.88.0.0/16 dev os src 10.88.0.1 congctl cubic
ip netns exec onrush-l sysctl -qw net.ipv4.ip_local_port_range="1024 65000"
ulimit -n $(ulimit -Hn)
mkdir -p "$out/media"
# Encoded once, so that nothing encodes while it is measured: 4 Mbit/s with its sound, two seconds a group. The players do not sleep
# (--busy-poll): the interrupt that wakes a processor of a virtual machine costs the sender several us, which it would
# not pay for players on other machines.
[ -e "$out/clock.mp4" ] || ffmpeg -nostdin -v error -f lavfi -i testsrc2=s=1280x720:r=25 \
  -f lavfi -i sine=r=48000 -t 60 -c:v libx264 -preset veryfast -tune zerolatency -g 50 \
  -b:v 3800k -minrate 3800k -maxrate 3800k -bufsize 3800k -nal-hrd cbr -c:a aac "$out/clock.mp4"
$server "$tree/target/release/onrush" serve "$out/media" --rtsp 0.0.0.0:8554 \
  --http 10.88.0.1:8080 --metrics 127.0.0.1:9554 --cache 64MiB --hls-always --channel clock=127.0.0.1:5004 \
  --hls-waiting-max 16384 --download-connections-max 20000 \
  --download-connections-per-address-max 20000 >"$out/server.log" 2>&1 &
pids+=($!); pid=$!
for _ in $(seq 60); do grep -q '^listening  http' "$out/server.log" && break; sleep 1; done
ip netns exec onrush-s taskset -c 1 nice -n -5 ffmpeg -nostdin -v error -re -stream_loop -1 \
  -i "$out/clock.mp4" -c copy -f mpegts "udp://127.0.0.1:5004?pkt_size=1316&buffer_size=4000000" &
pids+=($!)
sleep 15
$load "$tree/target/release/onrush-lab" load -n "$viewers" --ramp 30s --time 60s \
  --latency-max 3s --busy-poll --pid "$pid" --json "$out/load-hls.json" \
  hls://10.88.0.1:8080/live/clock/hls/index.m3u8 | tee "$out/load-hls.txt"
