"""An agent that submits the form through MCP, as often as it is told, always with the same key.

    python agent.py COMPANY KEY TIMES http://127.0.0.1:9000/mcp     a server, or `semel mcp` in front of it
    python agent.py COMPANY KEY TIMES COMMAND…

Prints a line of JSON for each call.
"""

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters

COMPANY, KEY, TIMES, *SERVER = sys.argv[1:]
TOOL = "formbridge_vendor-onboarding_submit"


def server():
    first, *rest = SERVER
    if first.startswith("http"):
        return first
    return StdioServerParameters(command=first, args=rest, env=dict(os.environ))


async def main():
    arguments = {"fields": {"companyName": COMPANY, "taxId": "12-3456789"}}
    async with Client(server()) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        takes_key = "idempotencyKey" in tools[TOOL].input_schema["properties"]
        if takes_key:
            arguments["idempotencyKey"] = KEY
        for _ in range(int(TIMES)):
            result = await client.call_tool(TOOL, arguments)
            meta = dict(result.meta or {})
            answer = {
                "takesKey": takes_key,
                "result": result.structured_content,
                "replayed": bool(meta.get("semel/replayed")),
                "isError": bool(result.is_error),
                "code": meta.get("semel/code"),
            }
            print(json.dumps(answer), flush=True)


asyncio.run(main())
