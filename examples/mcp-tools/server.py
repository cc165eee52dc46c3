"""Vendor onboarding as an MCP server: what an agent submits here ends up as a vendor that gets paid, so it must not be
submitted twice. Nothing in it knows of Semel.

    python server.py            on standard input and output
    python server.py 8000       on http://127.0.0.1:8000/mcp
"""

import json
import os
import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import ToolAnnotations

server = MCPServer("vendor-onboarding")
BOOK = Path(os.environ.get("VENDORS", "vendors.jsonl"))


def vendors() -> list[dict]:
    return [json.loads(line) for line in BOOK.read_text().splitlines()] if BOOK.exists() else []


@server.tool(
    name="vendor_submit",
    annotations=ToolAnnotations(title="Submit a vendor", destructive_hint=True, idempotent_hint=False),
)
async def submit(company_name: str, tax_id: str, iban: str, ctx: Context) -> dict[str, str]:
    """Submits a vendor for onboarding. Each submission opens a case that people work on."""
    submission = f"sub_{len(vendors()) + 1:04}"
    # A key that stays the same when this submission is made again: for the systems behind, which take one themselves.
    meta = ctx.request_context.meta or {}
    case = {"submission": submission, "company_name": company_name, "tax_id": tax_id, "iban": iban}
    if key := dict(meta).get("semel/downstreamKey"):
        case["bank_check_key"] = key
    with BOOK.open("a") as book:
        book.write(json.dumps(case) + "\n")
    return {"submission": submission, "state": "submitted"}


@server.tool(
    name="vendor_find",
    annotations=ToolAnnotations(title="Find vendors", read_only_hint=True),
)
async def find(company_name: str) -> dict[str, list[str]]:
    """The submissions of a company."""
    found = [case["submission"] for case in vendors() if case["company_name"] == company_name]
    return {"submissions": found}


@server.tool(
    name="vendor_set_contact",
    annotations=ToolAnnotations(title="Set a contact", destructive_hint=False, idempotent_hint=True),
)
async def set_contact(submission: str, email: str) -> dict[str, str]:
    """Sets the contact of a submission; the last one counts."""
    return {"submission": submission, "contact": email}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
