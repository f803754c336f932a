"""Who may do what: projects, accounts, their roles and tokens, and the trail of what was done."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, CheckConstraint, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from service.db.tables.base import Base, Id, Name, Sequence


class ProjectRow(Base):
    """A tenant. `share` is its weight against the others', for policies that keep shares; None: it has none. Quotas
    are what it may hold at once and spend in a calendar month (UTC); None: as much as there is."""

    __tablename__ = "projects"
    project: Mapped[str] = mapped_column(Name, primary_key=True)
    created_at_s: Mapped[float]
    share: Mapped[float | None]
    quota_gpus: Mapped[int | None]
    quota_usd_per_month: Mapped[float | None]
    __table_args__ = (
        CheckConstraint("share >= 0", name="project_share"),
        CheckConstraint("quota_gpus >= 0", name="project_quota_gpus"),
        CheckConstraint("quota_usd_per_month >= 0", name="project_quota_usd"),
    )


class AccountRow(Base):
    """A person or a program. `project` is whose administrators may change it: `*` for the platform's alone."""

    __tablename__ = "accounts"
    account_id: Mapped[str] = mapped_column(Id, primary_key=True)
    project: Mapped[str] = mapped_column(Name)
    name: Mapped[str] = mapped_column(Name, unique=True)
    kind: Mapped[str] = mapped_column(String(8))
    created_at_s: Mapped[float]
    disabled_at_s: Mapped[float | None]
    __table_args__ = (CheckConstraint("kind IN ('user', 'service')", name="account_kind"),)


class RoleRow(Base):
    """What an account may do in a project (`*`: in all of them)."""

    __tablename__ = "roles"
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.account_id"), primary_key=True)
    project: Mapped[str] = mapped_column(Name, primary_key=True, index=True)
    role: Mapped[str] = mapped_column(String(16))
    __table_args__ = (
        CheckConstraint(
            "(project = '*' AND role IN ('admin', 'viewer', 'agent'))"
            " OR (project <> '*' AND role IN ('project-admin', 'submitter', 'viewer'))",
            name="role_in_project",
        ),
    )


class TokenRow(Base):
    """A bearer token of an account, for one of its roles or less. Only SHA-256 of secrets are here; `prefix` is shown
    in lists. A rotation leaves the secret before valid until `previous_until_s`."""

    __tablename__ = "tokens"
    token_id: Mapped[str] = mapped_column(Id, primary_key=True)
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.account_id"), index=True)
    project: Mapped[str] = mapped_column(Name)
    name: Mapped[str] = mapped_column(Name)
    role: Mapped[str] = mapped_column(String(16))
    prefix: Mapped[str] = mapped_column(String(16))
    sha256: Mapped[str] = mapped_column(String(64), unique=True)
    created_at_s: Mapped[float]
    expires_at_s: Mapped[float | None]
    revoked_at_s: Mapped[float | None]
    previous_sha256: Mapped[str | None] = mapped_column(String(64), unique=True)
    previous_until_s: Mapped[float | None]
    rotated_at_s: Mapped[float | None]
    last_used_at_s: Mapped[float | None]
    """To a few minutes: it is not written with every request."""
    single_use: Mapped[bool] = mapped_column(Boolean, default=False)
    """It lets one agent join, in `region` if one is named."""
    region: Mapped[str | None] = mapped_column(Name)
    agent_id: Mapped[str | None] = mapped_column(Id, index=True)
    """The agent that has used it, if it is for single use; else the agent whose identity it is."""
    __table_args__ = (
        CheckConstraint(
            "role IN ('admin', 'project-admin', 'submitter', 'viewer', 'agent')", name="token_role"
        ),
    )


class AuditRow(Base):
    """One request that changed something or was denied, or `count` like denials. Append-only until it is pruned."""

    __tablename__ = "audit"
    seq: Mapped[int] = mapped_column(Sequence, primary_key=True, autoincrement=True)
    project: Mapped[str] = mapped_column(Name)
    """Of the caller, or of what an administrator changed."""
    at_s: Mapped[float]
    last_at_s: Mapped[float]
    """Of the last of `count`."""
    count: Mapped[int] = mapped_column(BigInteger)
    account: Mapped[str] = mapped_column(Name)
    """Empty where nobody was recognised."""
    token_id: Mapped[str] = mapped_column(Id)
    action: Mapped[str] = mapped_column(String(255))
    """Method and route."""
    path: Mapped[str] = mapped_column(String(255))
    object_kind: Mapped[str] = mapped_column(String(16))
    object_id: Mapped[str] = mapped_column(Id)
    """What was changed (the first of several)."""
    outcome: Mapped[str] = mapped_column(String(8))
    code: Mapped[str] = mapped_column(String(64))
    """Of the problem, if there was one."""
    address: Mapped[str] = mapped_column(String(255))
    trace_id: Mapped[str] = mapped_column(String(64))
    __table_args__ = (
        CheckConstraint("outcome IN ('done', 'denied', 'refused', 'failed')", name="audit_outcome"),
        Index("audit_of_project", "project", "seq"),
        Index("audit_by_age", "last_at_s"),
    )
