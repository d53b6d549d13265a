"""Opens the socket of the HTTP server."""

import errno
import ipaddress
import socket


def is_loopback(host):
    """Returns whether `listen` would resolve a host to a loopback address. Only programs on this machine can
    reach such an address."""
    return ipaddress.ip_address(_resolve(host)[1].partition("%")[0]).is_loopback


def _resolve(host):
    """Returns the address family and the address of a host.

    Raises:
      ValueError: the host is empty or unknown.
    """
    if not host:
        raise ValueError("--host is empty. Pass an address of this machine, such as 127.0.0.1.")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"--host={host}: {reason}. Pass an address of this machine, such as 127.0.0.1."
                         ) from None
    return family, address[0]


def listen(host, port):
    """Returns a socket that listens at a port.

    Args:
      host: str, name or address of this machine.
      port: int; 0 for any unused port.

    Raises:
      ValueError: the host is unknown.
      OSError: the port cannot be used.
    """
    family, address = _resolve(host)
    # With IPPROTO_TCP, asyncio sets TCP_NODELAY. Without TCP_NODELAY, each answer takes 40 ms longer, because
    # its second packet waits until the client has acknowledged the first packet.
    server = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, port))
        server.listen(socket.SOMAXCONN)
    except OSError as error:
        server.close()
        messages = {
            errno.EADDRINUSE: f"--port={port}: another program uses this port. End that program, or pass "
            "another port. --port=0 takes an unused port.",
            errno.EACCES: f"--port={port}: this user may not use the port. Pass a port of at least 1024.",
            errno.EADDRNOTAVAIL: f"--host={host} is not an address of this machine. Pass an address of this "
            "machine, such as 127.0.0.1."}
        raise OSError(messages.get(error.errno, f"--host={host} --port={port}: {error.strerror}.")) from None
    return server


def url_of(server):
    """Returns the URL at which a browser reaches a listening socket."""
    address, port = server.getsockname()[:2]
    return f"http://[{address}]:{port}/" if ":" in address else f"http://{address}:{port}/"
