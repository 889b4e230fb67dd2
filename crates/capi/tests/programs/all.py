"""What a program in Python does with libonrush, by ctypes: all.py LIBRARY FOLDER PORT..."""

import ctypes
import json
import mmap
import socket
import struct
import subprocess
import sys

onrush = ctypes.CDLL(sys.argv[1])
onrush.onrush_error_text.restype = ctypes.c_char_p
folder, ports = sys.argv[2], [int(port) for port in sys.argv[3:]]


def do(name, *arguments):
    if getattr(onrush, name)(*arguments) != 0:
        sys.exit(f"{name}: {onrush.onrush_error_text().decode()}")


def text(name, *arguments):
    room, length = 1 << 16, ctypes.c_size_t()
    to = ctypes.create_string_buffer(room)
    do(name, *arguments, to, ctypes.c_size_t(room), ctypes.byref(length))
    return json.loads(to.value)


class Loan(ctypes.Structure):
    _fields_ = [("number", ctypes.c_uint64), ("buffer", ctypes.c_uint16), ("uncached", ctypes.c_int32)]


class CacheOptions(ctypes.Structure):
    _fields_ = [("keep", ctypes.c_int32), ("entries_max", ctypes.c_uint32), ("bytes_max", ctypes.c_uint64)]


number = ctypes.c_uint64

# A lock on memory of Python's own.
memory = mmap.mmap(-1, 4 * mmap.PAGESIZE)
address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
lock = number()
do("onrush_lock", address, ctypes.c_size_t(len(memory)), 2, ctypes.byref(lock))
do("onrush_unlock", lock)
assert onrush.onrush_unlock(lock) == -4, "it was given back"
assert b"closed" in onrush.onrush_error_text()

# A registration of a ring: io_uring_setup(2) by its number.
ring = ctypes.CDLL(None).syscall(425, 8, ctypes.create_string_buffer(120))
cache, sealed, message, loan = number(), number(), ctypes.c_void_p(), Loan()
options = CacheOptions(0, 10, 1 << 20)
do("onrush_cache_open", ring, ctypes.byref(options), ctypes.byref(cache))
do("onrush_sealed_map", ctypes.c_size_t(9000), ctypes.byref(sealed), ctypes.byref(message), None)
do("onrush_cache_acquire", cache, message, ctypes.c_size_t(9000), ctypes.byref(loan))
assert loan.uncached == 0
do("onrush_cache_release", cache, number(loan.number))
do("onrush_cache_close", cache)
do("onrush_sealed_release", sealed)

# A group.
group, sent = number(), (ctypes.c_uint64 * 2)()
ours = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ours.bind(("127.0.0.1", 0))
members = b"".join(
    struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton("127.0.0.1") + bytes(8)
    for port in ports
)
do("onrush_group_open", ours.fileno(), None, ctypes.byref(group))
do("onrush_group_set", group, members, ctypes.c_size_t(len(members)))
do("onrush_group_send", group, b"from Python", ctypes.c_size_t(11), ctypes.c_size_t(0), sent)
assert list(sent) == [len(ports), 0], list(sent)
do("onrush_group_close", group)

# A server.
server = number()
config = f"""
[library]
folder = {json.dumps(folder)}
[server]
cache = "16MiB"
[listen]
rtsp = "127.0.0.1:0"
metrics = "off"
"""
do("onrush_server_start", config.encode(), ctypes.byref(server))
(at,) = text("onrush_server_addresses", server, 0)
probe = "ffprobe -v error -rtsp_transport tcp -show_entries stream=codec_name -of csv=p=0".split()
print(*sorted(subprocess.check_output([*probe, f"rtsp://{at}/demo.mp4"], text=True, timeout=120).split()))
status = text("onrush_server_status", server)
assert status["sessions"]["total"] == 1, status["sessions"]
do("onrush_server_stop", server)
print("done")
