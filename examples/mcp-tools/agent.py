"""An agent that onboards a vendor over a connection that loses results, with the Python SDK as its client.

    python agent.py COMMAND…         a server, or `semel mcp -- ` and a server
    python agent.py http://…/mcp
"""

import asyncio
import os
import sys
import uuid

from mcp import Client, StdioServerParameters

VENDOR = {"company_name": "Acme Corp", "tax_id": "DE123456789", "iban": "DE89370400440532013000"}


def server():
    first, *rest = sys.argv[1:]
    if first.startswith("http"):
        return first
    return StdioServerParameters(command=first, args=rest, env=dict(os.environ))


async def main():
    # The agent chooses the key before its first attempt, and keeps it.
    key = f"idem_{uuid.uuid4()}"
    async with Client(server()) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        takes_key = "idempotencyKey" in tools["vendor_submit"].input_schema["properties"]
        arguments = {**VENDOR, "idempotencyKey": key} if takes_key else VENDOR
        for attempt in 1, 2, 3:
            # Two results are lost on the way; the agent knows no more than that none came.
            result = await client.call_tool("vendor_submit", arguments)
        replayed = bool((result.meta or {}).get("semel/replayed"))
        print(f"attempt {attempt}: {result.structured_content}", "(replayed)" if replayed else "")
        found = await client.call_tool("vendor_find", {"company_name": VENDOR["company_name"]})
        print("submissions:", ", ".join(found.structured_content["submissions"]))


asyncio.run(main())
