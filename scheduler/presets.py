"""Known models and GPUs by name. Names are matched in any case; spaces, hyphens and underscores do not count.

Model shapes are those that the authors published (papers and configuration files). Of the GPUs, peak (dense, bf16;
fp16 where there is no bf16), memory, memory bandwidth, power and network are the vendors' data sheets; three
things are judged, and each can be overridden where the preset is used:

- `mfu`: the middle of what is reported for dense transformers on that GPU (llm-foundry, torchtitan, DGX Cloud,
  Megatron tables); for the A100-80G 0.45, which the published scenarios use;
- idle power: 0.15 × TDP, the share that an A100 with 400 W draws while it is held and waits (60 W);
- `cpu-slot`: one core of a server, so that everything runs without a GPU. An agent measures the real figure.

Accelerators whose power nobody publishes (TPU, Trainium) are left out: they could not be billed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import TypeVar

from scheduler.cluster import GpuType
from scheduler.errors import UnknownPresetError
from scheduler.job import ModelShape

_DENSE = """
GPT-3-125M                   12   768  12  12  64   3072  50257  2048 tp
GPT-3-350M                   24  1024  16  16  64   4096  50257  2048 tp
GPT-3-760M                   24  1536  16  16  96   6144  50257  2048 tp
GPT-3-1.3B                   24  2048  16  16 128   8192  50257  2048 tp
GPT-3-2.7B                   32  2560  32  32  80  10240  50257  2048 tp
GPT-3-6.7B                   32  4096  32  32 128  16384  50257  2048 tp
GPT-3-13B                    40  5120  40  40 128  20480  50257  2048 tp
GPT-3-175B                   96 12288  96  96 128  49152  50257  2048 tp
Megatron-GPT-1.7B            24  2304  24  24  96   9216  51200  2048 tp
Megatron-GPT-3.6B            30  3072  32  32  96  12288  51200  2048 tp
Megatron-GPT-7.5B            36  4096  32  32 128  16384  51200  2048 tp
Megatron-GPT-18.4B           40  6144  48  48 128  24576  51200  2048 tp
Megatron-GPT-39.1B           48  8192  64  64 128  32768  51200  2048 tp
Megatron-GPT-76.1B           60 10240  80  80 128  40960  51200  2048 tp
Megatron-GPT-145.6B          80 12288  96  96 128  49152  51200  2048 tp
Megatron-GPT-310.1B          96 16384 128 128 128  65536  51200  2048 tp
Megatron-GPT-529.6B         105 20480 128 128 160  81920  51200  2048 tp
Megatron-GPT-1008.0B        128 25600 160 160 160 102400  51200  2048 tp
Megatron-22B                 48  6144  64  64  96  24576  51200  2048 tp
LLaMA-1-7B                   32  4096  32  32 128  11008  32000  2048 g
LLaMA-1-13B                  40  5120  40  40 128  13824  32000  2048 g
LLaMA-1-33B                  60  6656  52  52 128  17920  32000  2048 g
LLaMA-1-65B                  80  8192  64  64 128  22016  32000  2048 g
Llama-2-7b                   32  4096  32  32 128  11008  32000  4096 g
Llama-2-13b                  40  5120  40  40 128  13824  32000  4096 g
Llama-2-70b                  80  8192  64   8 128  28672  32000  4096 g
Llama-3-8B                   32  4096  32   8 128  14336 128000  8192 g
Llama-3-70B                  80  8192  64   8 128  28672 128000  8192 g
Llama-3.1-8B                 32  4096  32   8 128  14336 128000  8192 g
Llama-3.1-70B                80  8192  64   8 128  28672 128000  8192 g
Llama-3.1-405B              126 16384 128   8 128  53248 128000  8192 g
Llama-3.2-1B                 16  2048  32   8  64   8192 128000  8192 gt
Llama-3.2-3B                 28  3072  24   8 128   8192 128000  8192 gt
Qwen2.5-0.5B                 24   896  14   2  64   4864 151936  4096 gt
Qwen2.5-1.5B                 28  1536  12   2 128   8960 151936  4096 gt
Qwen2.5-3B                   36  2048  16   2 128  11008 151936  4096 gt
Qwen2.5-7B                   28  3584  28   4 128  18944 152064  4096 g
Qwen2.5-14B                  48  5120  40   8 128  13824 152064  4096 g
Qwen2.5-32B                  64  5120  40   8 128  27648 152064  4096 g
Qwen2.5-72B                  80  8192  64   8 128  29568 152064  4096 g
Qwen3-0.6B                   28  1024  16   8 128   3072 151936  4096 gt
Qwen3-1.7B                   28  2048  16   8 128   6144 151936  4096 gt
Qwen3-4B                     36  2560  32   8 128   9728 151936  4096 gt
Qwen3-8B                     36  4096  32   8 128  12288 151936  4096 g
Qwen3-14B                    40  5120  40   8 128  17408 151936  4096 g
Qwen3-32B                    64  5120  64   8 128  25600 151936  4096 g
Mistral-7B-v0.1              32  4096  32   8 128  14336  32000  8192 g
falcon-7b                    32  4544  71   1  64  18176  65024  2048 -
falcon-40b                   60  8192 128   8  64  32768  65024  2048 -
falcon-180B                  80 14848 232   8  64  59392  65024  2048 -
pythia-1.4b                  24  2048  16  16 128   8192  50254  2048 -
pythia-2.8b                  32  2560  32  32  80  10240  50254  2048 -
pythia-6.9b                  32  4096  32  32 128  16384  50254  2048 -
pythia-12b                   36  5120  40  40 128  20480  50254  2048 -
Gemma-2-9b                   42  3584  16   8 256  14336 256000  8192 gt
Gemma-2-27b                  46  4608  32  16 128  36864 256000  8192 gt
OLMo-2-1124-7B               32  4096  32  32 128  11008 100278  4096 g
OLMo-2-1124-13B              40  5120  40  40 128  13824 100278  4096 g
phi-4                        40  5120  40  10 128  17920 100352  4096 g
Mistral-Large-Instruct-2407  88 12288  96   8 128  28672  32768  8192 g
OPT-1.3B                     24  2048  32  32  64   8192  50272  2048 tp
OPT-6.7B                     32  4096  32  32 128  16384  50272  2048 tp
OPT-13B                      40  5120  40  40 128  20480  50272  2048 tp
OPT-30B                      48  7168  56  56 128  28672  50272  2048 tp
OPT-66B                      64  9216  72  72 128  36864  50272  2048 tp
OPT-175B                     96 12288  96  96 128  49152  50272  2048 tp
BLOOM-176B                   70 14336 112 112 128  57344 250880  2048 t
MPT-125M                     12   768  12  12  64   3072  50368  2048 tp
MPT-350M                     24  1024  16  16  64   4096  50368  2048 tp
MPT-760M                     24  1536  12  12 128   6144  50368  2048 tp
MPT-1B                       24  2048  16  16 128   8192  50368  2048 tp
MPT-3B                       32  2560  20  20 128  10240  50368  2048 tp
MPT-7B                       32  4096  32  32 128  16384  50368  2048 tp
MPT-13B                      40  5120  40  40 128  20480  50368  2048 tp
MPT-30B                      48  7168  56  56 128  28672  50368  2048 tp
MPT-70B                      80  8192  64  64 128  32768  50368  2048 tp
Gemma-3-27B                  62  5376  32  16 128  21504 262144  8192 gt
FLM-101B                     80 10240  80  80 128  40960 100256  2048 t
gpt-nano                      4    64   2   2  32    176    256   128 g
gpt-tiny                      6   128   4   4  32    352    256   128 g
gpt-mini                      8   256   8   8  32    704    256   256 g
"""
"""name, layers, hidden, heads, kv_heads, head_dim, ffn, vocab, seq_len; g: gated MLP, t: tied embeddings, p: learned
positions. The last three are ours: small enough to train on CPU slots, over bytes."""

_MOE = """
Qwen3-30B-A3B      48 2048  32   4 128   768 151936 4096 128 8 0 0     0
Qwen3-235B-A22B    94 4096  64   4 128  1536 151936 4096 128 8 0 0     0
Mixtral-8x7B-v0.1  32 4096  32   8 128 14336  32000 8192   8 2 0 0     0
Mixtral-8x22B-v0.1 56 6144  48   8 128 16384  32768 8192   8 2 0 0     0
DeepSeek-V3-671B   61 7168 128 128 128  2048 129280 4096 256 8 1 3 18432
"""
"""As above, then experts, experts_per_token, shared_experts, dense_layers, dense_ffn. All gated, embeddings apart."""

_DEEPSEEK_V3_ATTENTION = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
"""Multi-head latent attention: ranks 1536 (queries) and 512 (keys, values), 64 rotary of 192 dimensions a head."""

_MODEL_ALIASES = {
    "bloom": "BLOOM-176B",
    "deepseek-v3": "DeepSeek-V3-671B",
    "gpt-3": "GPT-3-175B",
    "llama-7b": "LLaMA-1-7B",
    "llama-13b": "LLaMA-1-13B",
    "llama-33b": "LLaMA-1-33B",
    "llama-65b": "LLaMA-1-65B",
    "mistral-7b": "Mistral-7B-v0.1",
    "mistral-large": "Mistral-Large-Instruct-2407",
    "mixtral-8x7b": "Mixtral-8x7B-v0.1",
    "mixtral-8x22b": "Mixtral-8x22B-v0.1",
}

_GPUS = """
A100-80G  312   0.45   80 2039  400  60   200
A100-40G  312   0.475  40 1555  400  60    50
H100      989   0.465  80 3350  700 105   400
H200      989   0.475 141 4800  700 105   400
B200     2250   0.45  180 8000 1000 150   400
GB200    2500   0.44  186 8000 1200 180   400
B300     2250   0.45  288 8000 1000 150   800
L40S      362   0.375  48  864  350  52.5  50
A6000     155   0.40   48  768  300  45    12.5
A10G       70   0.375  24  600  300  45    12.5
V100-32G  125   0.25   32  900  300  45    12.5
V100-16G  125   0.25   16  900  300  45     3.125
T4         65   0.25   16  320   70  10.5  12.5
MI300X   1300   0.35  192 5300  750 112.5 400
MI325X   1300   0.35  256 6000 1000 150   400
cpu-slot    0.05 0.4     2   10   10   1.5  10
"""
"""name, peak TFLOP/s, mfu, memory GB, memory GB/s, TDP W, idle W, network Gbit/s a GPU (the node's, divided).

MFU of B300 as of B200 and of MI325X as of MI300X; the A6000's network as of other PCIe nodes (100 Gbit/s for 8)."""

_CPU_SLOT = "cpu-slot"
_GPU_ALIASES = {
    "a100": "A100-80G",
    "a100-80gb": "A100-80G",
    "a100-sxm-80gb": "A100-80G",
    "a100-40gb": "A100-40G",
    "a100-sxm-40gb": "A100-40G",
    "b200-sxm-180gb": "B200",
    "b300-sxm": "B300",
    "cpu": _CPU_SLOT,
    "gb200-sxm": "GB200",
    "h100-80g": "H100",
    "h100-80gb": "H100",
    "h100-sxm-80gb": "H100",
    "h200-141gb": "H200",
    "h200-sxm-141gb": "H200",
    "rtx-a6000": "A6000",
    "v100": "V100-16G",
    "v100-sxm2-16gb": "V100-16G",
    "v100-sxm2-32gb": "V100-32G",
}


_Preset = TypeVar("_Preset")


def model(name: str, *, field: str = "model.preset") -> ModelShape:
    """The shape of a known model, by its name in any case (`llama-2-7b`, `GPT-3 175B`).

    Raises UnknownPresetError with the names nearest to it.
    """
    return _find(name, field, _MODELS, _MODEL_KEYS)


def gpu(name: str, *, field: str = "gpu") -> GpuType:
    """A known GPU type, by its name in any case (`a100-80g`, `H100`, `cpu-slot`).

    Raises UnknownPresetError with the names nearest to it.
    """
    return _find(name, field, _GPU_TYPES, _GPU_KEYS)


def peak_flops(name: str) -> float:
    """Data-sheet peak of a known GPU, FLOP/s (dense bf16, or fp16): what an MFU is a fraction of.

    Raises UnknownPresetError for a CPU slot as well: what a core could do at most is on no data sheet of ours.
    """
    known = gpu(name).name
    if known == _CPU_SLOT:
        raise UnknownPresetError("gpu", name, "a GPU: the peak of a CPU slot is not known")
    return _PEAKS[known]


def _find(name: str, field: str, known: Mapping[str, _Preset], keys: Mapping[str, str]) -> _Preset:
    found = keys.get(_key(name))
    if found is None:
        near = sorted({keys[key] for key in get_close_matches(_key(name), keys, n=4, cutoff=0.5)})
        some = near or sorted(known, key=str.lower)[:8]
        raise UnknownPresetError(field, name, f"a known name, such as {', '.join(some)}")
    return known[found]


def _keys(known: Mapping[str, object], aliases: Mapping[str, str]) -> dict[str, str]:
    return {_key(name): name for name in known} | {_key(alias): name for alias, name in aliases.items()}


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def _dense(row: str) -> ModelShape:
    name, *numbers, marks = row.split()
    layers, hidden, heads, kv_heads, head_dim, ffn, vocab, seq_len = map(int, numbers)
    return ModelShape(
        name, layers, hidden, heads, kv_heads, head_dim, ffn, "g" in marks, vocab, seq_len,
        tied_embeddings="t" in marks, learned_positions="p" in marks,
    )  # fmt: skip


def _mixture(row: str) -> ModelShape:
    name, *numbers = row.split()
    layers, hidden, heads, kv_heads, head_dim, ffn, vocab, seq_len, *mixture = map(int, numbers)
    experts, experts_per_token, shared_experts, dense_layers, dense_ffn = mixture
    return ModelShape(
        name, layers, hidden, heads, kv_heads, head_dim, ffn, True, vocab, seq_len,
        experts=experts, experts_per_token=experts_per_token, shared_experts=shared_experts,
        dense_layers=dense_layers, dense_ffn=dense_ffn,
        attention_parameters=_DEEPSEEK_V3_ATTENTION if name.startswith("DeepSeek-V3") else 0,
    )  # fmt: skip


def _gpu_types() -> tuple[dict[str, GpuType], dict[str, float]]:
    types, peaks = {}, {}
    for row in _GPUS.split("\n")[1:-1]:
        name, *numbers = row.split()
        tflops, mfu, memory_gb, memory_gbytes_s, tdp_w, idle_w, network_gbps = map(float, numbers)
        types[name] = GpuType(
            name=name,
            sustained_flops=tflops * 1e12 * mfu,
            memory_bytes=memory_gb * 1e9,
            power_w=tdp_w,
            idle_w=idle_w,
            intra_region_bps=network_gbps * 1e9,
            memory_bps=memory_gbytes_s * 8e9,
        )
        peaks[name] = tflops * 1e12
    return types, peaks


_MODELS: Mapping[str, ModelShape] = MappingProxyType(
    {
        shape.name: shape
        for shape in (*map(_dense, _DENSE.split("\n")[1:-1]), *map(_mixture, _MOE.split("\n")[1:-1]))
    }
)
_GPU_TYPES, _PEAKS = _gpu_types()
_MODEL_KEYS = _keys(_MODELS, _MODEL_ALIASES)
_GPU_KEYS = _keys(_GPU_TYPES, _GPU_ALIASES)

MODEL_NAMES: tuple[str, ...] = tuple(sorted(_MODELS, key=str.lower))
GPU_NAMES: tuple[str, ...] = tuple(sorted(_GPU_TYPES, key=str.lower))
