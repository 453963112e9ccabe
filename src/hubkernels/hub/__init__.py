"""Hubs: what is published to one and pinned from one; `local` is a Hub of our own."""
