#!/bin/sh
# Takes the picture of the page that the README shows, docs/page.png, with the demo clips:
# cargo build --release && npm ci --prefix tests/browser && docs/page.sh
set -eu
cd "$(dirname "$0")/.."
"${ONRUSH:-target/release/onrush}" serve media --rtsp 127.0.0.1:28654 --http 127.0.0.1:28680 \
    --metrics off --state off --cache 1MiB &
server=$!
trap 'kill $server' EXIT
sleep 2
PICTURE=$PWD/docs/page.png node tests/browser/readme.mjs http://127.0.0.1:28680/ chromium
