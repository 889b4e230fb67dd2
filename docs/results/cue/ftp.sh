#!/bin/sh
# ftp.sh ONRUSH > ftp.csv: what 1 to 4 FTP clients get at once, as in the paper's table 8.
#
# Cue is `onrush serve --ftp` with the paper's schedules and with fair and adaptive; user-driven is vsftpd, one process
# for each client, with use_sendfile=NO. Server on the last processor, clients (curl) on the first; loopback.
# A row is one client's download: server, schedule, clients at once, repeat, bytes, seconds, bytes a second.
# Needs root, curl and vsftpd.
set -eu
onrush=$1
repeats=${REPEATS:-3}
last=$(($(nproc) - 1))
folder=$(mktemp -d /var/tmp/onrush-ftp.XXXXXX)
server=
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT
mkdir "$folder/root"
head -c 1000000 /dev/urandom >"$folder/root/small"
head -c 1000000000 /dev/urandom >"$folder/root/large"
chmod 755 "$folder" "$folder/root"
cat "$folder/root/small" "$folder/root/large" >/dev/null

# A port that listens.
wait_for() {
    for _ in $(seq 200); do
        curl -s --max-time 1 "ftp://127.0.0.1:$1/" >/dev/null && return
        sleep 0.05
    done
    echo "nothing listens at $1" >&2
    exit 2
}

# measure NAME SCHEDULE FILE PORT
measure() {
    for repeat in $(seq "$repeats"); do
        for clients in 1 2 3 4; do
            all=
            for client in $(seq "$clients"); do
                taskset -c 0 curl -s --max-time 60 -o /dev/null \
                    -w "$1,$2,$clients,$repeat,%{size_download},%{time_total},%{speed_download}\n" \
                    "ftp://127.0.0.1:$4/$3" >"$folder/client.$client" &
                all="$all $!"
            done
            for client in $all; do wait "$client"; done
            for client in $(seq "$clients"); do cat "$folder/client.$client"; done
        done
    done
}

echo "server,schedule,clients,repeat,bytes,seconds,bytes_a_second"
cat >"$folder/vsftpd.conf" <<CONF
listen=YES
listen_address=127.0.0.1
listen_port=22121
background=NO
anonymous_enable=YES
anon_root=$folder/root
no_anon_password=YES
use_sendfile=NO
seccomp_sandbox=NO
secure_chroot_dir=$folder/root
CONF
chmod 600 "$folder/vsftpd.conf"
taskset -c "$last" vsftpd "$folder/vsftpd.conf" &
server=$!
wait_for 22121
measure vsftpd user-driven large 22121
kill "$server"
port=22122
for schedule in 1,16ms 3,16ms 4,16ms 4,70ms fair adaptive; do
    case $schedule in
    fair | adaptive) file=large ;;
    *) file=small ;;
    esac
    taskset -c "$last" "$onrush" serve "$folder/root" --http off --rtsp 127.0.0.1:22554 \
        --ftp "127.0.0.1:$port" --cache 64MiB --cores "$last" --download-schedule "$schedule" \
        >"$folder/log" 2>&1 &
    server=$!
    wait_for "$port"
    [ "$file" = large ] || repeats=1
    measure onrush "$(echo "$schedule" | tr , :)" "$file" "$port"
    repeats=${REPEATS:-3}
    kill "$server"
    wait "$server" || true
    port=$((port + 1))
done
server=
