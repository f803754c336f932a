"""The end of a link: a TUN device in the namespace of a region, whose packets the relay takes and gives."""

from __future__ import annotations

import fcntl
import os
import struct

from service.cli.testbed.namespaces import Namespace, ip

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
MTU = 9000
"""Jumbo frames: a relay in Python is paid by the packet."""
QUEUE_PACKETS = 8192
"""Between the kernel and the relay: so that nothing is dropped where the relay comes late."""


def tun(namespace: Namespace, name: str, own: str, other: str) -> int:
    """A device in `namespace` that leads from address `own` to `other`; its file, which gives and takes packets.

    The device is gone once the file is closed. Raises OSError or subprocess.CalledProcessError.
    """
    with namespace.inside():
        file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
            ip("link", "set", name, "mtu", str(MTU), "txqueuelen", str(QUEUE_PACKETS))
            ip("address", "add", own, "peer", other, "dev", name)
            ip("link", "set", name, "up")
        except BaseException:
            os.close(file)
            raise
    return file
