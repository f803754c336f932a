"""The wire between server and agents: one round trip a heartbeat, report up, desired state down.

The server answers every heartbeat with *all* the processes that this agent should be running (`desired`), each
under a key that is never used twice. An agent starts a key at most once, whatever is repeated or reordered,
and stops what is no longer desired. Reports carry a sequence number of the agent's journal; the server answers
with the highest it has stored (`reports_stored`), and the agent sends the rest again. Version 1.
"""

from __future__ import annotations

import base64
import binascii
import lzma
import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

PROTOCOL_VERSION = 1
PROTOCOL_HEADER = "Bace-Agent-Protocol"
ABILITIES_HEADER = "Bace-Agent-Abilities"
"""What the agent can beside the rest of version 1, by commas. A server that knows nothing of it does not read it, and
one that does asks for nothing else: so either may be older than the other."""
ANSWERED_HEADER = "Bace-Agent-Answered"
"""`server_time_s` of the last answer to a heartbeat that this life of the agent has read; 0 before the first."""
LINK_TESTS = "link-tests"
"""The ability to measure links."""

Identifier = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._/-]{0,190}$")]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Counter = Annotated[int, Field(ge=0, le=2**53)]
"""What grows for as long as an agent or a job lives: sequence numbers, steps, lines, tokens."""
Seconds = Annotated[float, Field(ge=0, le=1e10, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=4096)]


class Wire(BaseModel):
    """Immutable, and strict about what it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


# --- joining -----------------------------------------------------------------------------------------------


class GpuTypeOffer(Wire):
    """What kind of GPU or slot a node has, with what was measured on it at joining."""

    name: Identifier
    memory_bytes: Annotated[float, Field(ge=1e6, le=1e15)]
    power_w: Annotated[float, Field(ge=0, le=1e5)]
    idle_w: Annotated[float, Field(ge=0, le=1e5)]
    sustained_flops: Annotated[float, Field(ge=1e3, le=1e18)]
    """Forward and backward of a transformer block, FLOP/s of one GPU or slot."""
    measured_at_s: Seconds


class NodeOffer(Wire):
    """A host as its agent sees it. One agent may stand for many."""

    node_id: Identifier
    region: Identifier
    gpu: GpuTypeOffer
    gpus: Annotated[int, Field(ge=1, le=1024)]
    address: Annotated[str, Field(max_length=255)]
    """Where the workers of this node can be reached by those of other nodes."""
    interface: Annotated[str, Field(max_length=64)] | None = None
    port_first: Annotated[int, Field(ge=1024, le=65535)]
    port_last: Annotated[int, Field(ge=1024, le=65535)]


class NodeIdentity(Wire):
    """A credential of one agent alone: what it shows from now on, instead of what it joined with."""

    token: Annotated[str, Field(pattern=r"^[!-~]{1,512}$")]
    expires_at_s: Seconds


class JoinRequest(Wire):
    """Sent once at start, and again after every restart of the agent: idempotent by agent_id."""

    agent_id: Identifier
    nodes: Annotated[list[NodeOffer], Field(min_length=1, max_length=256)]
    agent_version: Annotated[str, Field(max_length=64)]
    clock_s: Seconds
    """The agent's clock, for `bace doctor`; nothing is decided by it."""
    identity: bool = False
    """Whether it wants an identity of its own, and will keep it."""


class JoinReply(Wire):
    """How the server wants to hear from this agent."""

    heartbeat_interval_s: Seconds
    lease_s: Seconds
    """Without an answered heartbeat for so long the agent stops its workers."""
    server_time_s: Seconds
    identity: NodeIdentity | None = None
    """Only where it was asked for."""


# --- what should run ---------------------------------------------------------------------------------------


class StopProtocol(Wire):
    """How a worker is asked to stop: the signal, and the time until SIGKILL."""

    signal: Literal["TERM", "INT", "USR1", "USR2"] = "TERM"
    grace_s: Annotated[float, Field(ge=0, le=3600)] = 30.0


class StageProcess(Wire):
    """One process that should be running: one rank of one stage of one generation of a job."""

    key: Key
    """`<allocation_id>/<rank>`; an allocation belongs to one generation of a job, so a key never comes back."""
    job_id: Identifier
    allocation_id: Identifier
    generation: Annotated[int, Field(ge=1, le=2**31)]
    node_id: Identifier
    gpu_indices: Annotated[list[Count], Field(min_length=1, max_length=64)]
    rank: Count
    stage: Count
    argv: Annotated[list[Text], Field(min_length=1, max_length=256)]
    """What is executed, never through a shell. argv[0] `{python}` is the agent's own interpreter."""
    env: Annotated[
        dict[Annotated[str, Field(max_length=128)], Annotated[str, Field(max_length=32768)]],
        Field(max_length=512),
    ]
    """The place of the process (RANK, WORLD_SIZE, …, BACE_*) and the user's variables; allow-listed again here."""
    secrets: Annotated[dict[Annotated[str, Field(max_length=128)], Text], Field(max_length=128)] = Field(
        default_factory=dict
    )
    """NAME -> reference (`file:…`, `env:…`), resolved by the agent. No secret travels or is stored."""
    stop: StopProtocol = StopProtocol()


# --- what the built-in worker trains -------------------------------------------------------------------------


class WorkerModel(Wire):
    """The decoder-only transformer of the built-in worker (RMSNorm, RoPE, causal attention, SwiGLU)."""

    layers: Annotated[int, Field(ge=1, le=1024)]
    hidden: Annotated[int, Field(ge=1, le=65536)]
    heads: Annotated[int, Field(ge=1, le=1024)]
    kv_heads: Annotated[int, Field(ge=1, le=1024)]
    head_dim: Annotated[int, Field(ge=1, le=1024)]
    ffn: Annotated[int, Field(ge=1, le=1_000_000)]
    vocab: Annotated[int, Field(ge=1, le=10_000_000)]
    seq_len: Annotated[int, Field(ge=1, le=10_000_000)]


PlannedAction = Annotated[
    str,
    Field(
        pattern=r"^(0|[1-9][0-9]{0,3})(F|B|I|W|SEND_F|RECV_F|SEND_B|RECV_B)(0|[1-9][0-9]{0,4})$",
        max_length=15,
    ),
]
"""`<stage><operation><micro-batch>` in the letters of torch.distributed.pipelining: `0F3`, `1SEND_B0`."""


class WorkerOrder(Wire):
    """What one rank of a pipeline does in an iteration, in its order.

    A backward is whole (B) or split into the gradient of the stage's input (I) and that of its weights (W).
    Messages are there for all that leaves or enters the rank, or for nothing.
    """

    stage_ranks: Annotated[list[Count], Field(min_length=1, max_length=1024)]
    """For each stage of the pipeline its rank in it; a rank may have several."""
    actions: Annotated[list[PlannedAction], Field(min_length=1, max_length=1_000_000)]


class WorkerCodec(Wire):
    """The low-rank codec of the boundaries that cross regions: `rank` numbers a token instead of the model's width.

    `boundaries` are the stages behind which they are, ascending.
    """

    rank: Annotated[int, Field(ge=1, le=65536)]
    boundaries: Annotated[list[Count], Field(min_length=1, max_length=1024)]


class WorkerRateSchedule(Wire):
    """How the learning rate moves: up evenly over `warmup_steps`, then down to `final` of itself at the last step."""

    warmup_steps: Annotated[int, Field(ge=0, le=2**53)] = 0
    decay: Literal["constant", "linear", "cosine"] = "constant"
    final: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Of a linear or cosine decay."""


class WorkerPlan(Wire):
    """The plan of an allocation as its workers execute it: plain data, in the environment as `BACE_PLAN` (`plan_text`).

    `layers_per_stage` are whole layers in pipeline order; `window` is the in-flight cap of each stage. Without an
    `order` stage s runs window[s] forwards, then one backward and one forward in turn (GPipe: window =
    micro_batches).
    """

    model: WorkerModel
    steps: Annotated[int, Field(ge=1, le=2**53)]
    micro_batch: Annotated[int, Field(ge=1, le=65536)]
    micro_batches: Annotated[int, Field(ge=1, le=65536)]
    dtype: Literal["fp32", "bf16"]
    recompute: Literal["none", "selective", "full"]
    layers_per_stage: Annotated[list[Count], Field(min_length=1, max_length=1024)]
    window: Annotated[list[Annotated[int, Field(ge=1, le=65536)]], Field(min_length=1, max_length=1024)]
    order: WorkerOrder | None = None
    """Any other order than a window's; each rank is given its own."""
    binding: Literal["strict", "hint"] = "strict"
    """Whether a rank keeps to its order, or takes whatever is ready first in it, as long as its caps admit it."""
    weight_rule: Literal["flush", "current", "predicted", "double-buffered", "stashed"] = "flush"
    """Which weights a backward uses, and when they change."""
    update_every: Annotated[int, Field(ge=1, le=65536)] = 1
    """Micro-batches an update, of the rules that update within an iteration: all but flush."""
    error_feedback: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Strength of the correction of double-buffered; 0: none."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    learning_rate: Annotated[float, Field(gt=0, le=1)]
    rate_schedule: WorkerRateSchedule = WorkerRateSchedule()
    clip_norm: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """The most that the norm of the gradients of all stages may be; only with flush."""
    seed: Count
    codec: WorkerCodec | None = None
    corpus: Text | None = None
    """A file of text; by default the source text of the interpreter's standard library. Bytes are the tokens."""
    checkpoint_uri: Text
    """`file://` folder that the regions of the job share, or an address that fsspec opens, such as `s3://…`."""
    checkpoint_every: Annotated[int, Field(ge=1, le=2**53)]
    checkpoint_keep: Annotated[int, Field(ge=1, le=1000)] = 2
    """How many of the last complete checkpoints stay."""
    resume_step: Counter = 0
    """The checkpoint to go on from; 0: from the beginning."""


_PLAIN_CHARACTERS = 16384
_PACKED = "xz:"
_MOST_UNPACKED_BYTES = 4_000_000


def plan_text(plan: WorkerPlan) -> str:
    """A plan as `BACE_PLAN` has it: JSON; what would be long, with an order of many actions, as `xz:` and its base64.

    Fields at their defaults stay away: a worker of an older version does not know all of them.
    """
    text = plan.model_dump_json(exclude_defaults=True)
    if len(text) <= _PLAIN_CHARACTERS:
        return text
    return _PACKED + base64.b64encode(lzma.compress(text.encode())).decode()


def read_plan(text: str) -> WorkerPlan:
    """The inverse. Raises ValidationError for a text that is no plan, another ValueError if it cannot be unpacked."""
    if not text.startswith(_PACKED):
        return WorkerPlan.model_validate_json(text)
    unpacking = lzma.LZMADecompressor()
    try:
        packed = base64.b64decode(text[len(_PACKED) :], validate=True)
        unpacked = unpacking.decompress(packed, max_length=_MOST_UNPACKED_BYTES)
    except (binascii.Error, lzma.LZMAError) as error:
        raise ValueError(f"{_PACKED} is not followed by a packed plan: {error}") from None
    if not unpacking.eof:
        raise ValueError(f"the plan is cut off, or has more than {_MOST_UNPACKED_BYTES} bytes")
    return WorkerPlan.model_validate_json(unpacked)


# --- variables that no job may set --------------------------------------------------------------------------

_SET_BY_AGENT = re.compile(
    r"(BACE_(REPORT|WORK_DIR|DEVICE|TOKEN|URL)|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER"
    r"|(GLOO|NCCL)_SOCKET_IFNAME|HOME|TMPDIR|PATH|PWD)"
)
_HOOKS = re.compile(
    r"(LD_.*|DYLD_.*|GCONV_PATH|BASH_ENV|BASH_FUNC.*|ENV|IFS|PS4|SHELLOPTS|PROMPT_COMMAND"
    r"|PYTHON(HOME|PATH|STARTUP|INSPECT|BREAKPOINT|EXECUTABLE|PLATLIBDIR|USERBASE|WARNINGS)"
    r"|PERL5(LIB|OPT)|RUBY(LIB|OPT)|NODE_(OPTIONS|PATH))",
    re.IGNORECASE,
)


def why_refused(variable: str) -> str | None:
    """Why an agent passes no variable of this name to a process; None if it does. The server refuses the same."""
    if _SET_BY_AGENT.fullmatch(variable):
        return "is set by the agent"
    if _HOOKS.fullmatch(variable):
        return "changes how programs are loaded"
    return None


# --- measuring links -----------------------------------------------------------------------------------------


class LinkTest(Wire):
    """A measurement of one link that the server wants now. It is told with every answer for as long as it is wanted:
    an agent that is no longer told of it breaks it off."""

    test_id: Identifier
    role: Literal["listen", "connect"]
    """The agent at the link's end listens, on an address and port that it has advertised; the one at its beginning
    connects there, once the other has said that it listens."""
    address: Annotated[str, Field(max_length=255)]
    port: Annotated[int, Field(ge=1024, le=65535)]
    token: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{16,128}$", repr=False)]
    """Known to these two alone, and good for this measurement. It does not travel between them: they prove to each
    other that they have it."""
    streams: Annotated[int, Field(ge=0, le=16)]
    """Connections that carry bytes, together; 0: latency alone is measured."""
    max_bytes: Annotated[int, Field(ge=0, le=10**13)]
    max_s: Annotated[float, Field(ge=0, le=60)]
    """The sender sends no more than that, and for no longer."""
    open_s: Annotated[float, Field(gt=0, le=600)]
    """The listener waits for so long."""


class LinkTestReport(Wire):
    """What came of a measurement. Durations are by one agent's steady clock; whose clock is wrong does not matter."""

    test_id: Identifier
    state: Literal["listening", "done", "failed"]
    latency_s: Annotated[float, Field(gt=0, le=60)] | None = None
    """One way: half of the shortest round trip."""
    bandwidth_bps: Annotated[float, Field(gt=0, le=1e15)] | None = None
    """Payload that arrived in a second, after the slow start."""
    is_floor: bool = False
    """The link carries at least `bandwidth_bps`: bytes or time ran out before it was full for long enough."""
    sent_bytes: Annotated[int, Field(ge=0, le=2**53)] = 0
    detail: Annotated[str, Field(max_length=255)] | None = None
    """Why it failed."""


# --- heartbeat ---------------------------------------------------------------------------------------------


class ProcessState(StrEnum):
    """What an agent knows of a process."""

    STARTING = "starting"  # forked; has not said that it is ready
    READY = "ready"  # has joined its gang (rendezvous done)
    EXITED = "exited"  # ended by itself; exit_code tells how
    STOPPED = "stopped"  # ended because it was no longer desired, or its lease had run out
    FAILED_TO_START = "failed-to-start"  # could not be executed


class ProcessReport(Wire):
    """State of one process; sent in every heartbeat until the server no longer desires it and it has ended."""

    key: Key
    state: ProcessState
    exit_code: Annotated[int, Field(ge=-255, le=255)] | None = None
    """Negative: killed by that signal."""
    cause: Annotated[str, Field(max_length=64)] | None = None
    """What the worker gave as the reason of its end (`port-taken`, `rendezvous-timeout`, `out-of-memory`, …)."""
    detail: Text | None = None
    last_lines: Annotated[list[Text], Field(max_length=40)] = Field(default_factory=list)


class StepReport(Wire):
    """One training step (iteration) of a job, reported by its last stage."""

    kind: Literal["step"] = "step"
    seq: Counter
    key: Key
    step: Annotated[int, Field(ge=1, le=2**53)]
    loss: Annotated[float, Field(allow_inf_nan=True)]
    step_time_s: Seconds
    tokens: Counter
    grad_norm: Annotated[float, Field(allow_inf_nan=True)] | None = None
    """Of all stages, before clipping."""
    compute_s: Seconds | None = None
    """What of the step its last stage computed."""
    send_s: Seconds | None = None
    """What of it, at its end, that stage spent until what it had sent was gone; the rest it waited for others."""
    drift: Counter | None = None
    """The most updates of a stage between the forward and the backward of a micro-batch, of rules that update within
    a step; at most `drift_bound`."""
    drift_bound: Counter | None = None
    rolled_back: Counter | None = None
    """Updates that stages took back since this generation began."""
    at_s: Seconds


class CheckpointReport(Wire):
    """A checkpoint that is complete: the job can go on after `step`."""

    kind: Literal["checkpoint"] = "checkpoint"
    seq: Counter
    key: Key
    step: Counter
    uri: Text
    at_s: Seconds


class LogReport(Wire):
    """Lines that a process wrote."""

    kind: Literal["log"] = "log"
    seq: Counter
    key: Key
    first_line: Counter
    """Number of the first of these lines in the process's log, from 0."""
    lines: Annotated[list[Text], Field(min_length=1, max_length=500)]
    at_s: Seconds


class BusyReport(Wire):
    """How busy a process kept its GPU since its last such report: what the electricity meter reads."""

    kind: Literal["busy"] = "busy"
    seq: Counter
    key: Key
    from_s: Seconds
    to_s: Seconds
    busy_fraction: Annotated[float, Field(ge=0, le=1)]


Report = Annotated[StepReport | CheckpointReport | LogReport | BusyReport, Field(discriminator="kind")]


class Heartbeat(Wire):
    """Agent to server, every `heartbeat_interval_s`."""

    agent_id: Identifier
    boot_id: Identifier
    """Changes with every start of the agent: sequence numbers go on, the journal is kept."""
    clock_s: Seconds
    processes: Annotated[list[ProcessReport], Field(max_length=4096)] = Field(default_factory=list)
    reports: Annotated[list[Report], Field(max_length=2000)] = Field(default_factory=list)
    link_tests: Annotated[list[LinkTestReport], Field(max_length=16)] | None = None
    """Of measurements that this server has asked for; left out where there are none."""


class HeartbeatReply(Wire):
    """Server to agent: everything that should run on its nodes, and what of its reports is stored."""

    desired: Annotated[list[StageProcess], Field(max_length=4096)] = Field(default_factory=list)
    forget: Annotated[list[Key], Field(max_length=4096)] = Field(default_factory=list)
    """Keys whose end is stored: the agent need not report them again and may clean up their work folder."""
    reports_stored: Counter
    """Every report with seq ≤ this is stored."""
    heartbeat_interval_s: Seconds
    lease_s: Seconds
    server_time_s: Seconds
    identity: NodeIdentity | None = None
    """The agent's identity, renewed; the secret before stays valid until its own end."""
    link_tests: Annotated[list[LinkTest], Field(max_length=16)] | None = None
    """Measurements that this agent is to take part in now; told only to one that can."""
