"""Subscribers that move: safe and impact regions, their encoding, the protocol, a simulator."""
