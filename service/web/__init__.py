"""The dashboard at `/`: `mount(app)` puts it into the server's application."""

from service.web.router import mount, router

__all__ = ["mount", "router"]
