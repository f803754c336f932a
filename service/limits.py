"""Every bound on what a caller may send, ask for or keep waiting. A limit that is hit is named in the answer."""

from __future__ import annotations

MAX_BODY_BYTES = 1 << 20
"""Of a request to the public API, before anything is parsed."""
MAX_AGENT_BODY_BYTES = 16 << 20
"""Of a request to the agent API: a heartbeat carries log lines."""
MAX_JSON_DEPTH = 32
MAX_JSON_INTEGER = 2**53
"""Beyond it JSON numbers are not exact in every client."""

PAGE_DEFAULT = 100
PAGE_MAX = 500
JOB_PAGE_MAX = 200
"""A job is told whole, in some 2.5 kB: more of them would take longer than a list may."""
LOG_PAGE_MAX = 5000
STEP_PAGE_MAX = 5000

MAX_ERRORS_SHOWN = 50
MAX_VALUE_SHOWN = 80
"""Characters of a refused value that are repeated to the caller."""

MAX_PRICE_POINTS = 20_000
"""Of one import."""

STREAM_BATCH = 500
"""Events or log lines that a stream reads at a time."""
STREAM_POLL_S = 5.0
"""A stream looks at least so often, should a wake-up be lost, and checks its token anew."""
TOKEN_CACHE_S = 2.0
"""For so long another replica may still honour a token that was just revoked."""
TOKENS_KNOWN = 10_000
"""Tokens that a replica remembers, the last used."""
ADDRESSES_KNOWN = 10_000
"""Addresses whose failed authentications a replica remembers, the last ones."""
REQUEST_COSTS = {
    ("POST", "/v1/plans"): 20.0,
    ("GET", "/v1/jobs/{job_id}/explain"): 20.0,
    ("POST", "/v1/schedules"): 50.0,
    ("GET", "/v1/jobs/{job_id}/schedules"): 50.0,
}
"""What a request that asks the planner counts as, against one that only reads or stores."""
LAST_USED_GRAIN_S = 300.0
"""When a token was used last is stored this coarsely."""
BOOKKEEPING_S = 5.0
"""What is noted beside the requests is stored so often."""
MAX_AUDIT_TEXT = 255
"""Characters of an address or path that are kept."""
MAX_AUDIT_WAITING = 200
"""Different denials and refusals that are told apart between two writes."""
AUDIT_DROPPED_AT_ONCE = 10_000
"""Rows in one transaction, when they have had their time."""
MAX_LIVE_TOKENS = 1000
"""Of one account, agents' aside."""
MAX_ACCOUNTS = 1000
"""That belong to one project."""
MAX_TOKEN_OVERLAP_S = 30 * 86_400.0
"""For so long at most the secret before a rotation stays valid."""

MAX_WAITING_WRITES = 5000
"""Units of work in front of the database's writer; what comes beyond is told to try again."""
MAX_JOIN_TOKEN_S = 30 * 86_400.0
"""The longest life of a token that lets a node join."""
