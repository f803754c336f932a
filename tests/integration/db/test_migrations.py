"""Migrations lead to the tables of `service/db/tables` and back, on both databases, also from an installed package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, inspect, text
from sqlalchemy.exc import IntegrityError

from service.db import migrate
from service.db.engine import make_engine
from service.db.repositories import access, accounts, allocations, leader, quotas
from service.db.scope import EVERYTHING
from service.db.tables import Base
from service.db.transaction import Mode, transact
from service.errors import ConflictError
from service.server import migrate_database, prepare_database
from service.settings import Settings

OF_AN_OLDER_VERSION = (
    "INSERT INTO projects (project, created_at_s) VALUES ('nlp', 1.0)",
    "INSERT INTO jobs (job_id, project, name, submitted_by, spec, state, priority, submitted_at_s, declared_steps,"
    " reported_steps, checkpoint_step, checkpoint_regions, generation, retries, not_before_s, cancel_requested,"
    " reasons, version) VALUES ('job-1', 'nlp', 'tiny', 'token-1', '{}', 'running', 50, 1.0, 9, 0, 0, '[]', 1, 0,"
    " 0.0, FALSE, '[]', 1)",
    "INSERT INTO allocations (allocation_id, project, job_id, generation, state, placement, why,"
    " predicted_iteration_s, first_step, master_address, master_port, epoch, created_at_s, version)"
    " VALUES ('alloc-1', 'nlp', 'job-1', 1, 'running', '{}', '', 1.0, 1, '10.0.0.1', 29500, 1, 2.0, 1)",
    "INSERT INTO tokens (token_id, project, name, role, prefix, sha256, created_at_s)"
    " VALUES ('token-1', 'nlp', 'ci', 'submitter', 'bace_x', 'aa', 1.0), ('token-2', '*', 'gpus', 'agent', 'bace_y',"
    " 'bb', 1.0)",
    "INSERT INTO agents (agent_id, project, token_id, agent_version, reports_stored, clock_offset_s, joined_at_s,"
    " heartbeat_at_s) VALUES ('agent-1', '*', 'token-2', '0.1.0', 0, 0.0, 1.0, 1.0)",
    # 2026-11-30T23:59:59Z, 2026-12-01T00:00:00Z, and a kind that nobody pays for.
    "INSERT INTO ledger (project, job_id, allocation_id, kind, region, dst, gpu_type, from_s, to_s, quantity, unit,"
    " price, price_source, amount_usd) VALUES"
    " ('nlp', 'job-1', 'alloc-1', 'electricity', 'eu', '', 'g', 1796083199, 1796083200, 1.0, 'kWh', 3.0, 's', 3.0),"
    " ('nlp', 'job-1', 'alloc-1', 'electricity', 'eu', '', 'g', 1796083200, 1796083201, 1.0, 'kWh', 4.0, 's', 4.0),"
    " ('nlp', 'job-1', 'alloc-1', 'rent', 'eu', '', 'g', 1796083200, 1796083201, 1.0, 'kWh', 5.0, 's', 5.0),"
    " ('nlp', 'job-1', 'alloc-1', 'carbon', 'eu', '', 'g', 1796083200, 1796083201, 1.0, 'kg', 1.0, 's', 1.0)",
)


def _difference(engine: Engine) -> list[object]:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, Base.metadata))


def test_migrations_and_tables_agree(engine: Engine) -> None:
    assert _difference(engine) == []


def test_constraints_of_the_tables_are_in_the_migrations(engine: Engine) -> None:
    # The comparison above does not look at CHECKs.
    inspector = inspect(engine)
    for name, table in Base.metadata.tables.items():
        wanted = {c.name for c in table.constraints if type(c).__name__ == "CheckConstraint" and c.name}
        there = {c["name"] for c in inspector.get_check_constraints(name)}
        assert wanted <= there, name


def test_down_and_up_again_leaves_nothing_and_then_everything(engine: Engine) -> None:
    migrate.downgrade(engine, migrate.BASE)
    assert set(inspect(engine).get_table_names()) <= {"alembic_version"}
    migrate.upgrade(engine)
    assert _difference(engine) == []
    found, _ = transact(engine, Mode.READ, leader.get)
    assert (found.epoch, found.holder) == (0, "")


def test_what_an_older_version_stored_is_kept_and_completed(empty: Engine) -> None:
    migrate.upgrade(empty, "0001")
    with empty.begin() as connection:
        for statement in OF_AN_OLDER_VERSION:
            connection.execute(text(statement))
    migrate.upgrade(empty)
    found, _ = transact(empty, Mode.READ, lambda session: allocations.get(session, EVERYTHING, "alloc-1"))
    assert found is not None
    assert (found.transfers, found.stop_cause, found.stop_why) == ([], None, None)
    projects, _ = transact(empty, Mode.READ, lambda session: access.projects(session, EVERYTHING))
    assert [(each.project, each.share) for each in projects] == [("nlp", None)]
    for column in ("share", "quota_gpus", "quota_usd_per_month"):
        with pytest.raises(IntegrityError), empty.begin() as connection:
            connection.execute(text(f"UPDATE projects SET {column} = -1"))  # noqa: S608
    for month, amount_usd in (("2026-11", 3.0), ("2026-12", 9.0)):
        spent, _ = transact(empty, Mode.READ, lambda session, at=month: quotas.spent_usd(session, at))
        assert spent == {"nlp": amount_usd}
    tokens, _ = transact(empty, Mode.READ, lambda session: access.tokens(session, EVERYTHING))
    roles, _ = transact(
        empty,
        Mode.READ,
        lambda session: accounts.roles_of(session, [token.account_id for token in tokens]),
    )
    assert {token.token_id: (token.project, token.role) for token in tokens} == {
        token.token_id: (role.project, role.role) for token in tokens for role in roles[token.account_id]
    }
    with pytest.raises(IntegrityError), empty.begin() as connection:
        connection.execute(text("DELETE FROM tokens WHERE token_id = 'token-2'"))  # an agent is its
    with empty.begin() as connection:
        connection.execute(text("UPDATE tokens SET role = 'project-admin' WHERE token_id = 'token-1'"))
    migrate.downgrade(empty, "0001")
    with empty.connect() as connection:
        assert connection.execute(text("SELECT project FROM projects")).all() == [("nlp",)]
        found = connection.execute(text("SELECT token_id, role FROM tokens ORDER BY token_id")).all()
        assert [tuple(row) for row in found] == [("token-1", "submitter"), ("token-2", "agent")]
    migrate.upgrade(empty)
    assert _difference(empty) == []


def test_a_row_of_the_audit_log_cannot_be_changed(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO audit (project, at_s, last_at_s, count, account, token_id, action, path, object_kind,"
                " object_id, outcome, code, address, trace_id)"
                " VALUES ('nlp', 1.0, 1.0, 1, 'ci', 't', 'GET /', '/', '', '', 'denied', 'forbidden', '', 'r')"
            )
        )
    with pytest.raises(IntegrityError, match="never changed"), engine.begin() as connection:
        connection.execute(text("UPDATE audit SET account = 'somebody-else'"))
    with engine.begin() as connection:
        assert connection.execute(text("SELECT account FROM audit")).all() == [("ci",)]


def test_upgrading_again_changes_nothing(engine: Engine) -> None:
    migrate.upgrade(engine)
    with engine.connect() as connection:
        assert migrate.current(connection) == migrate.head()


def test_an_empty_database_is_prepared_and_an_unknown_schema_is_refused(empty: Engine) -> None:
    prepare_database(empty)
    assert _difference(empty) == []
    with empty.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(ConflictError, match="9999"):
        prepare_database(empty)


def test_migrations_are_found_wherever_the_package_lies(tmp_path: Path) -> None:
    program = (
        "from service.server import migrate_database; from service.settings import Settings; "
        "print(migrate_database(Settings()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"BACE_HOME": str(tmp_path), "PATH": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == migrate.head()
    with make_engine(f"sqlite:///{tmp_path / 'bace.db'}").connect() as connection:
        assert migrate.current(connection) == migrate.head()
    connection.engine.dispose()


def test_migrate_answers_the_revision(tmp_path: Path) -> None:
    assert migrate_database(Settings(home=tmp_path / "new")) == migrate.head()
