"""A scripted agent: it intends N acts, loses 30 % of the results, and calls again for those, with a fresh call id and no key,
as agents do. With a gateway, it kills that gateway with -9 while a call runs, and starts it again. Every second time it kills
the server instead, if the variable SERVER_PIDFILE says which process that is.

    agent.py N SEED KILLS PIDFILE COMMAND…    → JSON: what it was told
"""

import json
import os
import random
import signal
import sys

import anyio
from mcp import Client, StdioServerParameters

number, seed, kills, pidfile, *command = sys.argv[1:]
number, kills = int(number), int(kills)
chance = random.Random(int(seed))
kill_at = {number * (n + 1) // (kills + 1) for n in range(kills)}
told = {"done": 0, "in_doubt": [], "refused": [], "lost": 0, "calls": 0, "killed": 0, "replayed": 0, "verified": 0}


def connect():
    args = ["-c", 'echo $$ > "$0"; exec "$@"', pidfile, *command]
    return Client(StdioServerParameters(command="sh", args=args, env=dict(os.environ)), mode="legacy")


async def kill(after):
    await anyio.sleep(after)
    of_server = os.environ.get("SERVER_PIDFILE")
    with open(of_server if of_server and told["killed"] % 2 else pidfile) as file:
        os.kill(int(file.read()), signal.SIGKILL)
    told["killed"] += 1


async def intend(client, number):
    """One intended act, called until a result gets through. → whether to go on with this connection."""
    while True:
        told["calls"] += 1
        arguments = {"what": f"n{number}"}
        if number in kill_at:
            kill_at.discard(number)
            # The first time surely while the call runs, then at any moment of it.
            first = told["killed"] == 0
            arguments["seconds"] = 3 if first else 0.02
            after = 0.5 if first else chance.uniform(0.0, 0.08)
            async with anyio.create_task_group() as group:
                group.start_soon(kill, after)
                with anyio.move_on_after(2):
                    try:
                        await client.call_tool("act", arguments)
                    except Exception:
                        pass
            return False, arguments
        result = await client.call_tool("act", arguments)
        if settle(result, number):
            return True, None


def settle(result, number):
    meta = result.meta or {}
    if meta.get("semel/code") == "idempotency_in_doubt":
        told["in_doubt"].append({"number": number, "key": meta["semel/idempotencyKey"], "text": result.content[0].text})
        return True
    if meta.get("semel/verifiedBy"):
        told["verified"] += 1
        told["done"] += 1
        return True
    if result.is_error:
        told["refused"].append(result.content[0].text)
        return True
    told["replayed"] += bool(meta.get("semel/replayed"))
    if chance.random() < 0.3:
        told["lost"] += 1
        return False
    told["done"] += 1
    return True


async def main():
    current, again = 0, None
    while current < number:
        try:
            async with connect() as client:
                while current < number:
                    if again is not None:
                        # The call that ran when the gateway died, made again word for word.
                        told["calls"] += 1
                        if settle(await client.call_tool("act", again), current):
                            again = None
                            current += 1
                        continue
                    goes_on, again = await intend(client, current)
                    if not goes_on:
                        raise ConnectionError
                    current += 1
        except* Exception:
            # The gateway is gone, as it should be; anything else is a mistake.
            if again is None:
                raise
    print(json.dumps(told))


anyio.run(main)
