"""Plays a fixed script of messages to a server, and says every message that came back, in order. No SDK between: what is
compared with and without a gateway is what is on the wire.

    raw.py TARGET    a URL, or a JSON list with a command
"""

import asyncio
import json
import os
import sys

import httpx2 as httpx


class Stdio:
    def __init__(self, command):
        self.command = command
        self.inbox = asyncio.Queue()

    async def __aenter__(self):
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(*self.command, stdin=pipe, stdout=pipe, limit=1 << 24)
        self.reader = asyncio.create_task(self.read())
        return self

    async def read(self):
        while line := await self.process.stdout.readline():
            await self.inbox.put(json.loads(line))

    async def send(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        await self.process.stdin.drain()

    async def __aexit__(self, *_):
        self.process.stdin.close()
        await asyncio.wait_for(self.process.wait(), 20)
        await self.reader


class Http:
    def __init__(self, url):
        self.url = url
        self.inbox = asyncio.Queue()
        self.headers = {"Accept": "application/json, text/event-stream"}
        self.posts = []

    async def __aenter__(self):
        self.client = httpx.AsyncClient(timeout=60)
        return self

    async def send(self, message):
        post = asyncio.create_task(self.post(message))
        self.posts.append(post)
        if "id" not in message or message.get("method") == "initialize":
            await post

    async def post(self, message):
        async with self.client.stream("POST", self.url, json=message, headers=self.headers) as response:
            if session := response.headers.get("mcp-session-id"):
                self.headers["Mcp-Session-Id"] = session
                self.headers["MCP-Protocol-Version"] = "2025-06-18"
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                async for line in response.aiter_lines():
                    if line.startswith("data:") and line[5:].strip():
                        await self.inbox.put(json.loads(line[5:]))
            elif body := await response.aread():
                await self.inbox.put(json.loads(body))

    async def __aexit__(self, *_):
        for post in self.posts:
            post.cancel()
        await asyncio.gather(*self.posts, return_exceptions=True)
        await self.client.delete(self.url, headers=self.headers)
        await self.client.aclose()


async def play(peer):
    seen = []

    async def until(wanted):
        while True:
            message = await asyncio.wait_for(peer.inbox.get(), 30)
            seen.append(message)
            if wanted(message):
                return message

    async def ask(id, method, params=None):
        await peer.send({"jsonrpc": "2.0", "id": id, "method": method, **({"params": params} if params else {})})
        return await until(lambda message: message.get("id") == id and "method" not in message)

    client = {"name": "raw", "version": "1"}
    capabilities = {"elicitation": {}, "sampling": {}, "roots": {"listChanged": True}}
    await ask(1, "initialize", {"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": client})
    await peer.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    await ask("two", "ping")
    page = await ask(3, "tools/list")
    number = 30
    while cursor := page["result"].get("nextCursor"):
        page = await ask(number, "tools/list", {"cursor": cursor})
        number += 1
    await ask(40, "resources/list")
    await ask(41, "resources/read", {"uri": "notes://a"})
    await ask(42, "prompts/list")
    await ask(43, "prompts/get", {"name": "greet", "arguments": {"name": "Ann"}})
    await ask(44, "no/such/method", {"a": 1})
    await ask(45, "tools/list", {"cursor": "no such page"})

    def call(name, arguments, key, **more):
        meta = {**({"idempotencyKey": key} if key else {}), **more}
        return {"name": name, "arguments": arguments, **({"_meta": meta} if meta else {})}

    await ask(50, "tools/call", call("act", {"what": "plain"}, None))
    await ask(51, "tools/call", call("act", {"what": "keyed"}, "c-1"))
    await ask("p-52", "tools/call", call("slowly", {"what": "keyed"}, "c-2", progressToken="p-52"))
    await ask(53, "tools/call", call("slowly", {"what": "plain"}, None, progressToken=53))
    await ask(54, "tools/call", call("no_such_tool", {}, "c-3"))
    await ask(55, "tools/call", call("fail", {"what": "keyed"}, "c-4"))
    await ask(56, "tools/call", call("count", {}, "c-5"))

    # The server asks while a call runs.
    await peer.send({"jsonrpc": "2.0", "id": 60, "method": "tools/call", "params": call("ask", {"what": "keyed"}, "c-6")})
    asked = await until(lambda message: message.get("method") == "elicitation/create")
    answer = {"action": "accept", "content": {"sure": True}}
    await peer.send({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
    await until(lambda message: message.get("id") == 60 and "method" not in message)

    # A call is cancelled, with a key and without one.
    for id, key in ((70, None), (71, "c-7")):
        params = call("act", {"what": f"cancelled {id}", "seconds": 3}, key)
        await peer.send({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
        await asyncio.sleep(0.5)
        cancel = {"requestId": id, "reason": "changed my mind"}
        await peer.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel})
        await asyncio.sleep(0.5)
        await ask(id + 10, "ping")
    return seen


async def main(target):
    peer = Http(target) if target.startswith("http") else Stdio(json.loads(target))
    async with peer:
        seen = await play(peer)
        while not peer.inbox.empty():
            seen.append(peer.inbox.get_nowait())
    print(json.dumps(seen))


asyncio.run(main(sys.argv[1]))
