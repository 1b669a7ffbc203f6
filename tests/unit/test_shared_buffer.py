"""The buffer between encoder and uploader gives back exactly what went in, in order, from any thread."""

from __future__ import annotations

import os
import threading

import pytest

from icefloe.connector.shared_buffer import SharedBuffer
from icefloe.errors import StateError


def test_bytes_come_out_in_order_and_in_the_lengths_asked_for() -> None:
    buffer = SharedBuffer()
    assert buffer.write(b"abc") == 3
    buffer.write(memoryview(b"defgh"))
    buffer.flush()
    assert (len(buffer), buffer.tell()) == (8, 8)
    assert buffer.split_to(2) == b"ab"
    assert buffer.peek() == b"cdefgh"
    assert buffer.split_to(0) == b""
    assert buffer.split_to(6) == b"cdefgh"
    assert (len(buffer), buffer.tell()) == (0, 8)


@pytest.mark.parametrize("length", [4, -1])
def test_asking_for_more_than_is_there_takes_nothing(length: int) -> None:
    buffer = SharedBuffer()
    buffer.write(b"abc")
    with pytest.raises(StateError, match="ICEFLOE_BUFFER_SHORT"):
        buffer.split_to(length)
    assert buffer.split_to(3) == b"abc"


def test_what_is_taken_is_let_go_of() -> None:
    buffer = SharedBuffer()
    data = bytearray(b"x" * 100)
    buffer.write(memoryview(data))
    buffer.split_to(100)
    # A bytearray that somebody still views refuses to be resized.
    data.extend(b"y")


def test_a_writer_and_a_taker_in_two_threads_lose_nothing() -> None:
    buffer = SharedBuffer()
    pieces = [os.urandom(1 + index % 97) for index in range(2000)]
    writer = threading.Thread(target=lambda: [buffer.write(piece) for piece in pieces])
    writer.start()
    taken = b""
    while writer.is_alive() or len(buffer):
        taken += buffer.split_to(min(len(buffer), 1000))
    writer.join()
    assert taken == b"".join(pieces)
