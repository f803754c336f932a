"""What the agent refuses or cannot do. The message tells the operator what would be right."""

from __future__ import annotations


class AgentError(Exception):
    """Root of the agent's errors. `code` is for machines."""

    code = "agent_error"


class SettingsError(AgentError):
    """A setting that cannot be meant: names the option, the value and what would be right."""

    code = "invalid_setting"

    def __init__(self, option: str, value: object, expected: str) -> None:
        super().__init__(f"{option}: {value!r} is not valid: expected {expected}")
        self.option = option


class WorkDirTakenError(AgentError):
    """Another agent works in this folder."""

    code = "work_dir_taken"


class JournalError(AgentError):
    """The journal cannot be read or written; nothing that was not journaled has been done."""

    code = "journal"


class RefusedError(AgentError):
    """A process that this agent will not start. `cause` goes to the server with the message as detail."""

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = detail


class ProbeError(AgentError):
    """The device could not be measured."""

    code = "probe"


class LinkProbeError(AgentError):
    """A measurement of a link that came to nothing; the message goes to the server."""

    code = "link_probe"


class UnreachableError(AgentError):
    """The server did not answer, or not now: try again soon."""

    code = "unreachable"

    def __init__(self, detail: str, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class RejectedError(AgentError):
    """The server answered, and will not have it as it is: a person has to change something."""

    code = "rejected"

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class UnknownAgentError(RejectedError):
    """The server does not know this agent (any more): it has to join again."""

    code = "unknown_agent"
