"""A client built on the official Python SDK: goes through everything, and says what it saw as JSON.

    client.py MODE TARGET    MODE: legacy or auto; TARGET: a URL, or a JSON list with a command
"""

import json
import os
import sys

import anyio
from mcp import Client, MCPError, StdioServerParameters
from mcp.types import ElicitResult


def target(text):
    if text.startswith("http"):
        return text
    command, *args = json.loads(text)
    return StdioServerParameters(command=command, args=args, env=dict(os.environ))


def seen(result):
    meta = result.meta or {}
    return {
        "text": [block.text for block in result.content if block.type == "text"],
        "structured": result.structured_content,
        "error": bool(result.is_error),
        "replayed": bool(meta.get("semel/replayed")),
        "code": meta.get("semel/code"),
        "key": meta.get("semel/idempotencyKey"),
    }


async def main(mode, where):
    said = {}

    async def elicit(context, params):
        return ElicitResult(action="accept", content={"sure": True})

    progress = []

    async def on_progress(done, total, message):
        progress.append([done, total, message])

    async with Client(target(where), mode=mode, elicitation_callback=elicit) as client:
        call = client.call_tool
        said["version"] = client.protocol_version
        page = await client.list_tools()
        tools = page.tools
        while page.next_cursor:
            page = await client.list_tools(cursor=page.next_cursor)
            tools += page.tools
        said["tools"] = {tool.name: sorted(tool.input_schema.get("properties", {})) for tool in tools}
        said["without"] = [seen(await call("act", {"what": "plain"})) for _ in range(2)]
        said["key"] = [seen(await call("act", {"what": "one", "idempotencyKey": "k-1"})) for _ in range(3)]
        said["other_name"] = seen(await call("act", {"what": "one", "idempotency_key": "k-1"}))
        said["meta"] = seen(await call("act", {"what": "one"}, meta={"idempotencyKey": "k-1"}))
        said["mismatch"] = seen(await call("act", {"what": "two", "idempotencyKey": "k-1"}))
        said["bad_key"] = seen(await call("act", {"what": "two", "idempotencyKey": "not a key"}))
        said["own_key"] = [seen(await call("own_key", {"what": "x", "idempotency_key": "k-own"})) for _ in range(2)]
        said["downstream"] = [seen(await call("downstream", {"what": "x", "idempotencyKey": "k-down"})) for _ in range(2)]
        slowly = {"what": "p", "idempotencyKey": "k-slow"}
        said["slowly"] = seen(await call("slowly", slowly, progress_callback=on_progress))
        said["progress"] = progress
        # Without sessions, a server has no way to ask while a call runs.
        if client.protocol_version < "2026":
            asking = {"what": "a", "idempotencyKey": "k-ask"}
            said["asked"] = [seen(await call("ask", asking)) for _ in range(2)]
        said["read_only"] = [seen(await call("count", {})) for _ in range(2)]
        said["failed"] = [seen(await call("fail", {"what": "f", "idempotencyKey": "k-fail"})) for _ in range(2)]
        try:
            said["unknown_tool"] = seen(await call("no_such_tool", {"idempotencyKey": "k-no"}))
        except MCPError as error:
            said["unknown_tool"] = {"error": True, "text": [str(error)]}
        said["status"] = seen(await call("semel_status", {"tool": "act", "idempotencyKey": "k-1"}))
        said["no_status"] = seen(await call("semel_status", {"tool": "act", "idempotencyKey": "k-none"}))

        results = []

        async def together():
            results.append(seen(await call("act", {"what": "t", "seconds": 0.5, "idempotencyKey": "k-t"})))

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(together)
        said["together"] = results
        said["resource"] = (await client.read_resource("notes://a")).contents[0].text
        said["prompt"] = (await client.get_prompt("greet", {"name": "Ann"})).messages[0].content.text
    print(json.dumps(said))


anyio.run(main, sys.argv[1], sys.argv[2])
