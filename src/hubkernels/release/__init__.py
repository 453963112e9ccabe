"""Releasing: build, every gate, publish, read back, card, lock; from the step that failed when it is called again."""
