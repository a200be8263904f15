from __future__ import annotations

import random

import pytest

from ash_sdk import AshProtocolError, _sse
from ash_sdk._sse import Frame, Parser

TEXT = (
    "\ufeff: hello\n\n"
    'id: 1-7\nevent: text_delta\ndata: {"delta":"Grüße, 世界 🦢"}\n\n'
    "data:first\ndata\ndata:  third\r\r"
    "id: 2\n\n"
    "event:x\r\ndata: y\r\n\r\n"
    "retry: 5\nnonsense\nid: a\0b\ndata: z\n\n"
    "data: never ended\n"
).encode()

FRAMES = [
    Frame("text_delta", '{"delta":"Grüße, 世界 🦢"}', "1-7"),
    Frame("message", "first\n\n third"),
    Frame("x", "y"),
    Frame("message", "z"),
]


def parsed(pieces: list[bytes]) -> list[Frame]:
    parser = Parser()
    return [frame for piece in pieces for frame in parser.push(piece)]


def test_frames_are_read_as_the_standard_says() -> None:
    assert parsed([TEXT]) == FRAMES


def test_one_cut_anywhere_changes_nothing() -> None:
    for cut in range(len(TEXT) + 1):
        assert parsed([TEXT[:cut], TEXT[cut:]]) == FRAMES, cut


def test_byte_by_byte_is_the_same() -> None:
    assert parsed([bytes([byte]) for byte in TEXT]) == FRAMES


@pytest.mark.parametrize("seed", range(200))
def test_random_cuts_change_nothing(seed: int) -> None:
    chance = random.Random(seed)
    said = "".join(chance.choice("aé世🦢 :\\") for _ in range(chance.randrange(200)))
    ending = chance.choice(["\n", "\r", "\r\n"])
    text = f": {said}{ending}id: 1-{seed}{ending}event: e{ending}data: {said}{ending}{ending}".encode() * 3
    cuts = sorted(chance.randrange(len(text) + 1) for _ in range(chance.randrange(20)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert parsed(pieces) == [Frame("e", said, f"1-{seed}")] * 3


def test_what_is_too_long_is_refused_and_heartbeats_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sse, "MAX_BYTES", 100)
    parser = Parser()
    for _ in range(50):
        assert parser.push(b": " + b" " * 60 + b"\n\n") == []
    assert parser.push(b"data: " + b"x" * 60 + b"\n\n") == [Frame("message", "x" * 60)]
    with pytest.raises(AshProtocolError):
        parser.push(b"data: " + b"x" * 60 + b"\ndata: " + b"x" * 60)
