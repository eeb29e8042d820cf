"""Which addresses a sink may be at: public ones, and what whoever keeps the server allows."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import TypeAlias

from nearcast.errors import ValidationError

__all__ = ["Allowed", "Network", "is_public", "networks"]

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
_NAT64 = IPv6Network("64:ff9b::/96")


def networks(text: str) -> tuple[Network, ...]:
    """Networks and addresses with commas between them."""
    found = []
    for each in text.split(","):
        if each.strip():
            try:
                found.append(ip_network(each.strip()))
            except ValueError as error:
                raise ValidationError(
                    "sink_allow", each.strip(), f"give networks such as 10.0.0.0/8 ({error})"
                ) from None
    return tuple(found)


def is_public(address: Address) -> bool:
    """Whether an address is one of the internet's, and stands for no other that is not."""
    inner = _inner(address)
    if inner is not None:
        return is_public(inner)
    return (
        address.is_global and not address.is_multicast and not address.is_reserved
        and not address.is_unspecified
    )  # fmt: skip


def _inner(address: Address) -> IPv4Address | None:
    """The address of version 4 that one of version 6 leads to."""
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


@dataclass(frozen=True, slots=True)
class Allowed:
    """The rule: public addresses, all of them, or some more."""

    private: bool = False
    more: tuple[Network, ...] = ()

    def takes(self, text: str) -> bool:
        """Whether a sink may be at an address."""
        try:
            address: Address = ip_address(text)
        except ValueError:
            return False
        inner = _inner(address) or address
        if inner.is_multicast or inner.is_unspecified:
            return False
        if self.private or is_public(address):
            return True
        return any(inner.version == each.version and inner in each for each in self.more)
