"""What dishonest clients send instead of their work.

A part of this slot has ``clients``, ``fit`` and ``rows`` (see `poise.core.protocols.Attack`); it sees the
models its clients received and nothing else.
"""
