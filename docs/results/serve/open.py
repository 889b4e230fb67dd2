"""How long a server takes to open films that nobody has asked for, from the page cache: to the answer
to DESCRIBE, from PLAY to the first packet, and from SETUP to its answer, which comes between them;
and once more, when it knows them.

    python3 open.py ONRUSH FILM [COPIES]

Starts the server on loopback without a kept index, with copies of FILM, each of them opened once."""
import json
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

onrush, film = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
copies = int(sys.argv[3]) if len(sys.argv) > 3 else 15


def ask(rtsp, method, url, headers=""):
    rtsp.sendall(f"{method} {url} RTSP/1.0\r\nCSeq: 1\r\n{headers}\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += rtsp.recv(65536)
    head, body = answer.split(b"\r\n\r\n", 1)
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    while len(body) < int(fields.get("Content-Length", 0)):
        body += rtsp.recv(65536)
    assert b" 200 " in head, head
    return fields


def opened(address, name):
    """Milliseconds to the answer to DESCRIBE, from PLAY to the first packet, and from SETUP to its answer."""
    url = f"rtsp://{address[0]}:{address[1]}/{name}"
    with socket.create_connection(address) as rtsp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        udp.settimeout(10)
        port = udp.getsockname()[1]
        begin = time.perf_counter()
        ask(rtsp, "DESCRIBE", url)
        described = time.perf_counter()
        transport = f"Transport: RTP/AVP;unicast;client_port={port}-{port + 1}\r\n"
        session = ask(rtsp, "SETUP", f"{url}/track1", transport)["Session"].split(";")[0]
        play = time.perf_counter()
        rtsp.sendall(f"PLAY {url} RTSP/1.0\r\nCSeq: 2\r\nSession: {session}\r\n\r\n".encode())
        udp.recv(2048)
        played = time.perf_counter()
        return [(described - begin) * 1e3, (played - play) * 1e3, (play - described) * 1e3]


with tempfile.TemporaryDirectory() as folder:
    names = [f"film-{number}{film.suffix}" for number in range(copies)]
    for name in names:
        shutil.copy(film, pathlib.Path(folder, name))
        pathlib.Path(folder, name).read_bytes()
    options = ["--rtsp", "127.0.0.1:0", "--http", "off", "--metrics", "off", "--state", "off"]
    command = [onrush, "serve", folder, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            line = next(line for line in server.stdout if line.startswith("listening"))
            host, port = line.split("//")[1].strip().strip("/").rsplit(":", 1)
            first = []
            for name in names:
                first.append(opened((host, int(port)), name))
                # The rest of it is read behind: films are opened one at a time here.
                time.sleep(2)
            again = [opened((host, int(port)), name) for name in names]
        finally:
            server.terminate()
    print(json.dumps({"film_bytes": film.stat().st_size, "first_ms": first, "again_ms": again}))
    for what, times in [("first", first), ("again", again)]:
        for column, step in enumerate(["DESCRIBE", "PLAY to the first packet", "SETUP"]):
            ms = [steps[column] for steps in times]
            print(f"{what}: {step}: median {statistics.median(ms):.1f} ms, {min(ms):.1f} to {max(ms):.1f}")
