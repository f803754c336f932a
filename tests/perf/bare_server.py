"""What a submission is compared to: FastAPI with one route that inserts one row through SQLAlchemy, durably."""

from __future__ import annotations

import os
import uuid
from typing import Any

import uvicorn
from fastapi import FastAPI
from sqlalchemy import Column, Float, MetaData, String, Table, insert

from service.db.engine import make_engine


def main() -> None:
    """Serve on BACE_PORT until killed."""
    engine = make_engine(os.environ["BARE_DATABASE_URL"])
    table = Table("bare", MetaData(), Column("name", String(64), primary_key=True), Column("value", Float))
    table.create(engine)
    app = FastAPI()

    @app.get("/readyz")
    async def ready() -> dict[str, bool]:
        return {"ready": True}

    @app.post("/rows", status_code=201)
    def add(document: dict[str, Any]) -> dict[str, str]:
        name = str(uuid.uuid4())
        with engine.begin() as connection:
            connection.execute(insert(table).values(name=name, value=float(len(document))))
        return {"row": name}

    uvicorn.run(
        app, host="127.0.0.1", port=int(os.environ["BACE_PORT"]), log_level="warning", access_log=False
    )


if __name__ == "__main__":
    main()
