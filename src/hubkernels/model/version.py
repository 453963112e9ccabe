"""Version numbers as build.toml and variant tags use them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Version:
    """A dotted number, compared part by part: ``2.9 < 2.10 < 2.10.1``."""

    parts: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read ``"2.10"`` or ``"13.0.2"``; a local part such as ``+cpu`` is dropped. Raises ValueError."""
        parts = text.partition("+")[0].split(".")
        if not all(part.isascii() and part.isdigit() for part in parts):
            raise ValueError(f"not a version number: {text!r}")
        return cls(tuple(int(part) for part in parts))

    @property
    def minor(self) -> Version:
        """Major and minor number alone, the part that binary compatibility depends on."""
        return Version((*self.parts, 0)[:2])

    @property
    def digits(self) -> str:
        """Major and minor run together, as variant tags spell them: ``2.10`` is ``210``."""
        return "".join(str(part) for part in self.minor.parts)

    def __str__(self) -> str:
        return ".".join(str(part) for part in self.parts)
