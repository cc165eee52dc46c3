"""A server built on the official Python SDK. Every act is a line in the file LEDGER, so that a test can count them."""

import os
import sys

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("tools")


def note(text: str) -> int:
    """Acts: one line, on disk before it is answered."""
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write(text + "\n")
        ledger.flush()
        os.fsync(ledger.fileno())
    with open(os.environ["LEDGER"]) as ledger:
        return len(ledger.readlines())


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
async def act(what: str, seconds: float = 0) -> dict[str, int]:
    """Acts, after a while."""
    await anyio.sleep(seconds)
    return {"line": note(f"act {what}")}


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
async def act_then_wait(what: str, until: str) -> dict[str, int]:
    """Acts, and answers when there is a file of that name."""
    line = note(f"act {what}")
    while not os.path.exists(until):
        await anyio.sleep(0.02)
    return {"line": line}


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
async def act_then_die(what: str) -> str:
    """Acts, and takes the server down."""
    note(f"act {what}")
    os._exit(7)


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
async def die_first(what: str, died: str) -> dict[str, int]:
    """Takes the server down, unless there is a file of that name. Then it acts."""
    if not os.path.exists(died):
        open(died, "w").close()
        os._exit(7)
    return {"line": note(f"act {what}")}


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def find(what: str) -> dict[str, int]:
    """How often it was done."""
    with open(os.environ["LEDGER"]) as ledger:
        return {"times": ledger.read().splitlines().count(f"act {what}")}


@server.tool(annotations=ToolAnnotations(destructive_hint=False))
async def fail(what: str) -> str:
    """Acts, and says that it failed."""
    note(f"fail {what}")
    raise ValueError("it does not work")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def count() -> dict[str, int]:
    """How many acts there were."""
    with open(os.environ["LEDGER"]) as ledger:
        return {"lines": len(ledger.readlines())}


@server.tool(annotations=ToolAnnotations(destructive_hint=False))
async def slowly(what: str, ctx: Context) -> str:
    """Acts, and reports progress."""
    for step in range(1, 4):
        await ctx.report_progress(step, 3, f"step {step}")
        await anyio.sleep(0.05)
    note(f"slowly {what}")
    return what


class Answer(BaseModel):
    sure: bool


@server.tool(annotations=ToolAnnotations(destructive_hint=False))
async def ask(what: str, ctx: Context) -> str:
    """Asks the user first."""
    answer = await ctx.elicit("Sure?", Answer)
    note(f"ask {what} {answer.action}")
    return answer.action


@server.tool(annotations=ToolAnnotations(destructive_hint=False))
async def own_key(what: str, ctx: Context, idempotency_key: str = "") -> str:
    """Takes a key itself."""
    note(f"own {what}")
    return idempotency_key


@server.tool(annotations=ToolAnnotations(destructive_hint=False))
async def downstream(what: str, ctx: Context) -> str:
    """Says which key it would pass on."""
    note(f"downstream {what}")
    meta = ctx.request_context.meta
    meta = meta if isinstance(meta, dict) else (meta.model_dump(by_alias=True) if meta else {})
    return str(meta.get("semel/downstreamKey"))


@server.resource("notes://{name}")
def read_note(name: str) -> str:
    """A note."""
    return f"the note {name}"


@server.prompt()
def greet(name: str) -> str:
    """A greeting."""
    return f"Greet {name}."


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]), json_response=len(sys.argv) > 2)
    else:
        server.run()
