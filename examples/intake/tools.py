"""The intakes as MCP tools, for agents that do not speak HTTP: an ordinary MCP server that calls the intake API.

    INTAKE=http://127.0.0.1:3000 python tools.py

`semel mcp -- python tools.py` in front of it adds the argument `idempotencyKey` to the tools that act. The gateway
passes a key of its own on, and the API takes that one: so the two protect each other's calls.
"""

import json
import os
import urllib.error
import urllib.request
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import ToolAnnotations

server = MCPServer("formbridge")
INTAKE = os.environ.get("INTAKE", "http://127.0.0.1:3000")


def call(path: str, fields: dict | None = None, key: str | None = None) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Idempotency-Key"] = key
    body = None if fields is None else json.dumps({"fields": fields}).encode()
    request = urllib.request.Request(f"{INTAKE}/api/intakes/vendor-onboarding/{path}", data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        # What the API says of it, for the agent.
        return json.load(error)


@server.tool(
    name="formbridge_vendor-onboarding_submit",
    annotations=ToolAnnotations(title="Submit the form", destructive_hint=True, idempotent_hint=False),
)
async def submit(fields: dict[str, str], ctx: Context) -> dict[str, Any]:
    """Submits the vendor onboarding form."""
    meta = dict(ctx.request_context.meta or {})
    return call("submit", fields, meta.get("semel/downstreamKey"))


@server.tool(
    name="formbridge_vendor-onboarding_get",
    annotations=ToolAnnotations(title="Look at a submission", read_only_hint=True),
)
async def get(submission: str) -> dict[str, Any]:
    """A submission, with everything that happened to it."""
    return call(f"submissions/{submission}")


if __name__ == "__main__":
    server.run()
