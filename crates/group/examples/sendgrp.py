#!/usr/bin/python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""One send, many receivers: sendgrp.py ADDRESS PORT...

To be run in a control group that `onrush group serve --cgroup FOLDER` serves. No module is needed.
"""
import socket
import struct
import sys

SO_SETSENDGRP = 0x4F01
SO_SENDGRPINFO = 0x4F05


def sockaddr(address, port):
    """struct sockaddr_in: family in the machine's byte order, port and address in the network's."""
    family = struct.pack("=H", socket.AF_INET)
    return family + struct.pack("!H", port) + socket.inet_aton(address) + bytes(8)


address, ports = sys.argv[1], [int(port) for port in sys.argv[2:]]
group = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
members = b"".join(sockaddr(address, port) for port in ports)
group.setsockopt(socket.SOL_SOCKET, SO_SETSENDGRP, members)
# The address gives the packets their way. The socket is not connected to it: when a program that it
# is connected to ends, a send fails, for all members.
group.sendto(b"one send, many receivers", (address, ports[0]))
info = group.getsockopt(socket.SOL_SOCKET, SO_SENDGRPINFO, 40)
count, _, _, packets, refused, _ = struct.unpack("=IIQQQQ", info)
print(f"{count} members, {packets} packets, {refused} refused")
