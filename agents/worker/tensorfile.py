"""Named tensors in one file, in the open safetensors layout: a length, a JSON header, the raw bytes.

Nothing in such a file can be executed, and any safetensors reader opens it. A checksum over the bytes stands in
the header's metadata, so that a torn or damaged file is told apart from a whole one.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "F64": torch.float64}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
LENGTH_BYTES = 8
MAX_HEADER_BYTES = 16_000_000


class DamagedTensorFileError(Exception):
    """The file is torn, or something else than what was written."""


def encoded(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """The content of a file, piece by piece; tensors on the CPU are not copied."""
    payloads = [_raw(tensor) for tensor in tensors.values()]
    header: dict[str, Any] = {}
    offset = checksum = 0
    for (name, tensor), payload in zip(tensors.items(), payloads, strict=True):
        end = offset + payload.nbytes
        header[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        checksum = zlib.crc32(payload.data, checksum)
        offset = end
    header["__metadata__"] = {**metadata, "crc32": f"{checksum:08x}"}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the tensors begin at a multiple of eight
    yield len(text).to_bytes(LENGTH_BYTES, "little")
    yield text
    for payload in payloads:
        yield payload.data


def decoded(content: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors (on the CPU) and the metadata of a file.

    Raises DamagedTensorFileError for what is no whole file of this layout.
    """
    length = int.from_bytes(content[:LENGTH_BYTES], "little")
    if len(content) < LENGTH_BYTES or length > min(MAX_HEADER_BYTES, len(content) - LENGTH_BYTES):
        raise DamagedTensorFileError("it is too short for its header")
    try:
        header = json.loads(content[LENGTH_BYTES : LENGTH_BYTES + length])
        metadata = header.pop("__metadata__")
        payload = np.frombuffer(content, dtype=np.uint8, offset=LENGTH_BYTES + length)
        if f"{zlib.crc32(payload.data):08x}" != metadata["crc32"]:
            raise DamagedTensorFileError("its bytes do not have the checksum of its header")
        tensors = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            raw = torch.from_numpy(payload[begin:end].copy())
            tensors[name] = raw.view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise DamagedTensorFileError(f"its header does not fit: {error}") from error
    return tensors, metadata


def _raw(tensor: Tensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes of a tensor, row by row. (numpy has no bfloat16: as bytes every dtype is the same.)"""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
