"""Searches and reads the documentation with the official Python SDK, and says what it saw as JSON.

    docs.py COMMAND...
"""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> None:
    server = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = await session.list_tools()
        found = await session.call_tool("search_docs", {"query": "crash policy hold"})
        page = await session.call_tool("read_doc", {"page": "guarantees"})
        missing = await session.call_tool("read_doc", {"page": "../Cargo.toml"})
    text = [result.content[0].text for result in (found, page, missing)]
    print(json.dumps({"tools": [tool.name for tool in tools.tools], "found": text[0], "page": text[1], "missing": text[2]}))


asyncio.run(main())
