"""Runs steps with the `mcp` client against one stdio server and prints what came back, all in JSON.

stdin:  {"server": {"command", "args", "env"}, "mode": "legacy" or "auto", "steps": [...]}
stdout: {"revision", "serverName", "capabilities", "answers": [one per step]}

Steps:
  {"list": [prefix, ...]}                         lists the tools; until each prefix was seen, again whenever they change
  {"call": name, "arguments": {...}}              calls a tool
      "progress": true                            also reports the progress that came
      "cancelAfter": n                            gives up after n reports of progress
"""

import asyncio
import json
import sys

import anyio
from mcp import Client, MCPError, StdioServerParameters
from mcp.types import ToolListChangedNotification


def plain(model):
    """What was received, without what the client would fill in."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Session:
    def __init__(self, plan):
        self.plan = plan
        self.tools_changed = anyio.Event()

    async def run(self):
        server = StdioServerParameters(**self.plan["server"])
        async with Client(server, mode=self.plan["mode"], message_handler=self.on_message) as client:
            return {
                "revision": client.protocol_version,
                "serverName": client.server_info.name,
                "capabilities": plain(client.server_capabilities),
                "answers": [await self.step(client, step) for step in self.plan["steps"]],
            }

    async def on_message(self, message):
        if isinstance(message, ToolListChangedNotification):
            self.tools_changed.set()

    async def step(self, client, step):
        return await (self.list(client, step["list"]) if "list" in step else self.call(client, step))

    async def list(self, client, prefixes):
        while True:
            self.tools_changed = anyio.Event()
            tools = []
            cursor = None
            while True:
                page = await client.list_tools(cursor=cursor)
                tools += page.tools
                cursor = page.next_cursor
                if cursor is None:
                    break
            if all(any(tool.name.startswith(prefix) for tool in tools) for prefix in prefixes):
                return [plain(tool) for tool in tools]
            await self.tools_changed.wait()

    async def call(self, client, step):
        seen = []
        answer = {}
        with anyio.CancelScope() as scope:

            async def on_progress(progress, total, message):
                seen.append([progress, total])
                if len(seen) == step.get("cancelAfter"):
                    scope.cancel()

            wants_progress = "progress" in step or "cancelAfter" in step
            callback = on_progress if wants_progress else None
            try:
                result = await client.call_tool(step["call"], step["arguments"], progress_callback=callback)
                answer["result"] = plain(result)
            except MCPError as error:
                answer["error"] = plain(error.error)
        if scope.cancelled_caught:
            answer["cancelled"] = True
        if "progress" in step:
            answer["progress"] = seen
        return answer


print(json.dumps(asyncio.run(Session(json.load(sys.stdin)).run())))
