"""Keeps requests to addresses that users name away from this machine and the networks around it."""

import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from tasks.errors import InputError

_NAT64 = IPv6Network("64:ff9b::/96")
_UNICAST = IPv6Network("2000::/3")
"""All that is given out of the public internet's addresses."""
_DOCUMENTATION = IPv6Network("3fff::/20")
"""Newer than the tables of some versions of Python."""


class PrivateAddressError(OSError):
    """A name or an address leads to a network that is not public."""


def is_public(text: str) -> bool:
    """True for an address of the public internet; also the address inside of one that only wraps it must be public."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv4Address):
        return _is_global(address)
    if address.ipv4_mapped is not None:
        return _is_global(address.ipv4_mapped)
    if address in _NAT64:
        return _is_global(IPv4Address(int(address) & 0xFFFF_FFFF))
    # Other ways to wrap an address, such as a NAT64 of the network's own, lie outside and may lead anywhere.
    if address not in _UNICAST or address in _DOCUMENTATION:
        return False
    # Versions of Python differ on whether 6to4 itself is public: what it wraps decides.
    if address.sixtofour is not None:
        return _is_global(address.sixtofour)
    return all(map(_is_global, (address, *(address.teredo or ()))))


def _is_global(address: IPv4Address | IPv6Address) -> bool:
    return address.is_global and not address.is_multicast


def literal_of(url: str) -> str | None:
    """The host of a URL where it is an address and no name; connecting to one asks no resolver."""
    host = urlsplit(url).hostname or ""
    try:
        return str(ip_address(host.partition("%")[0]))
    except ValueError:
        return None


def refuse_private(url: str | None, *, allowed: bool) -> None:
    """Raises ``InputError`` for a callback to an address that is not public, or to a name of this machine.

    No other name is resolved: that may take as long as a name server likes, and would tell which names of the private network there
    are. The delivery looks a name up, and connects to no other address than it saw.
    """
    if url is None or allowed:
        return
    host = (urlsplit(url).hostname or "").rstrip(".")
    literal = literal_of(url) or _short_form(host)
    if host == "localhost" or host.endswith(".localhost") or (literal is not None and not is_public(literal)):
        raise InputError(
            f"{literal or host} is no public address; callbacks to private networks need NIGHTDESK_CALLBACK_PRIVATE=true",
            field="callback_url",
        )


def _short_form(host: str) -> str | None:
    """The address that resolvers take a number or a short form for, such as 2130706433, 127.1 or 0x7f.1."""
    try:
        return str(IPv4Address(socket.inet_aton(host)))
    except (OSError, UnicodeError):
        return None
