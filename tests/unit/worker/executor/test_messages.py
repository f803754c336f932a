"""A message holds its tensors, of whatever types, and the number of its micro-batch."""

from __future__ import annotations

import torch

from agents.worker.executor.messages import Packing


def test_what_is_packed_is_unpacked_with_its_number() -> None:
    examples = (torch.empty(3, 5, dtype=torch.bfloat16), torch.empty(3, dtype=torch.int32), torch.empty(2, 2))
    packing = Packing(examples)
    sent = (torch.randn(3, 5).bfloat16(), torch.tensor([7, -1, 2**30], dtype=torch.int32), torch.randn(2, 2))

    message = packing.pack(65_535, sent)
    number, received = packing.unpack(message)

    assert message.numel() == 32 + 16 + 16 + 8, "each part begins where any type may"
    assert message.numel() == packing.empty().numel()
    assert number == 65_535
    for one, other in zip(sent, received, strict=True):
        assert torch.equal(one, other)
        assert one.dtype == other.dtype


def test_a_message_does_not_change_with_what_was_sent() -> None:
    packing = Packing([torch.empty(4)])
    sent = torch.ones(4)

    message = packing.pack(0, [sent])
    sent.zero_()

    assert torch.equal(packing.unpack(message)[1][0], torch.ones(4))
