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
servers=
finish() {
    # shellcheck disable=SC2086 # a list of processes
    [ -z "$servers" ] || kill $servers 2>/dev/null || true
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

# measure NAME SCHEDULE FILE PORT REPEAT
measure() {
    for clients in 1 2 3 4; do
        all=
        for client in $(seq "$clients"); do
            taskset -c 0 curl -s --max-time 60 -o /dev/null \
                -w "$1,$2,$clients,$5,%{size_download},%{time_total},%{speed_download}\n" \
                "ftp://127.0.0.1:$4/$3" >"$folder/client.$client" &
            all="$all $!"
        done
        for client in $all; do wait "$client"; done
        for client in $(seq "$clients"); do cat "$folder/client.$client"; done
    done
}

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
servers=$!
wait_for 22121
port=22122
schedules="fair adaptive 1,16ms 3,16ms 4,16ms 4,70ms"
for schedule in $schedules; do
    taskset -c "$last" "$onrush" serve "$folder/root" --http off --rtsp 127.0.0.1:0 \
        --ftp "127.0.0.1:$port" --cache 1MiB --cores "$last" --download-schedule "$schedule" \
        >"$folder/log" 2>&1 &
    servers="$servers $!"
    wait_for "$port"
    port=$((port + 1))
done

# All in turn, so that what disturbs the machine disturbs all. The paper's schedules move some hundreds of KB a
# second however fast the machine is: they get the small file, once.
echo "server,schedule,clients,repeat,bytes,seconds,bytes_a_second"
for repeat in $(seq "$repeats"); do
    measure vsftpd user-driven large 22121 "$repeat"
    port=22122
    for schedule in $schedules; do
        case $schedule in
        fair | adaptive) measure onrush "$schedule" large "$port" "$repeat" ;;
        *)  [ "$repeat" != 1 ] ||
                measure onrush "$(echo "$schedule" | tr , :)" small "$port" "$repeat" ;;
        esac
        port=$((port + 1))
    done
done
