"""Runs steps with the `mcp` client and prints what came back, all in JSON. `steps.rs` tells what steps there are.

stdin:  {"inTurn": whether sessions are held one after the other or side by side, "sessions": [...]}; a session is
        {"server": {"command", "args", "env"} or {"url", "type": "http" or "sse"},
         "mode": "legacy", "auto" or a revision, "offers": ["elicitation", "sampling", "roots"],
         "logLevel": what to hear of, "steps": [...]}
stdout: a list with one of these per session
        {"revision", "serverName", "capabilities", "instructions", "answers": [one per step]}
"""

import asyncio
import json
import sys
import warnings

import anyio
from mcp import Client, MCPError, StdioServerParameters
from mcp import types
from mcp.client.sse import sse_client
from mcp.client.subscriptions import ResourceUpdated
from mcp.shared.exceptions import MCPDeprecationWarning

# Half of what is tested is deprecated.
warnings.simplefilter("ignore", MCPDeprecationWarning)

LISTS_THAT_CHANGED = {
    types.ToolListChangedNotification: "tools",
    types.PromptListChangedNotification: "prompts",
    types.ResourceListChangedNotification: "resources",
}


# Seconds. Long enough for a busy machine, short enough to be told before the test gives up.
STEP_LIMIT = 60


def plain(model):
    """What was received, without what the client would fill in."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Mailbox:
    """What came unasked, and a way to wait for more of it."""

    def __init__(self):
        self.messages = []
        self.arrived = anyio.Event()

    def put(self, message):
        self.messages.append(message)
        self.arrived.set()
        self.arrived = anyio.Event()

    async def until(self, enough):
        while not enough(self.messages):
            await self.arrived.wait()
        return self.messages


class Session:
    def __init__(self, plan):
        self.plan = plan
        self.forget()

    def forget(self):
        """Each step sees only what comes while it is carried out."""
        self.changes, self.logs, self.asked, self.replies = Mailbox(), Mailbox(), [], []

    async def run(self):
        offers = self.plan.get("offers", [])
        client = Client(
            self.transport(),
            mode=self.plan["mode"],
            # Unless said otherwise, a client to which `mcp-aggregator` lists canonical names.
            client_info=types.Implementation(name=self.plan.get("name", "mcp-inspector"), version="1.0.0"),
            message_handler=self.on_message,
            logging_callback=self.on_log,
            log_level=self.plan.get("logLevel"),
            elicitation_callback=self.on_elicitation if "elicitation" in offers else None,
            sampling_callback=self.on_sampling if "sampling" in offers else None,
            list_roots_callback=self.on_roots if "roots" in offers else None,
            # Every step is to reach the server.
            cache=None,
        )
        seen = None
        try:
            async with client:
                level = self.plan.get("logLevel")
                if level and client.protocol_version < "2026" and client.server_capabilities.logging:
                    await client.set_logging_level(level)
                seen = {
                    "revision": client.protocol_version,
                    "serverName": client.server_info and client.server_info.name,
                    "capabilities": plain(client.server_capabilities),
                    "instructions": client.instructions,
                    "answers": await self.steps(client),
                }
        except Exception:
            # Over SSE, a message that comes while the client is leaving is an error to it.
            if seen is None:
                raise
        return seen

    async def steps(self, client):
        """Answers of all steps; after one that took too long there are no more."""
        answers = []
        for step in self.plan["steps"]:
            with anyio.move_on_after(STEP_LIMIT) as limit:
                answers.append(await self.step(client, step))
            if limit.cancelled_caught:
                answers.append({"timedOut": step, "asked": self.asked, "changes": self.changes.messages})
                break
        return answers

    def transport(self):
        server = self.plan["server"]
        if "command" in server:
            return StdioServerParameters(**server)
        return sse_client(server["url"]) if server["type"] == "sse" else server["url"]

    # --- what the server sends unasked

    async def on_message(self, message):
        if isinstance(message, types.ResourceUpdatedNotification):
            self.changes.put(str(message.params.uri))
        elif type(message) in LISTS_THAT_CHANGED:
            self.changes.put(LISTS_THAT_CHANGED[type(message)])

    async def on_log(self, params):
        self.logs.put({"level": params.level, "logger": params.logger, "data": params.data})

    async def on_elicitation(self, context, params):
        return types.ElicitResult(**self.reply("elicitation/create", params))

    async def on_sampling(self, context, params):
        return types.CreateMessageResult(**self.reply("sampling/createMessage", params))

    async def on_roots(self, context):
        return types.ListRootsResult(roots=[types.Root(uri="file:///somewhere", name="somewhere")])

    def reply(self, method, params):
        asked = plain(params)
        asked.pop("_meta", None)
        self.asked.append({"method": method, **asked})
        return self.replies.pop(0)

    # --- steps

    async def step(self, client, step):
        self.forget()
        self.replies = list(step.get("replies", []))
        verb = next(verb for verb in VERBS if verb in step)
        try:
            answer = await VERBS[verb](self, client, step)
        except MCPError as error:
            answer = {"error": plain(error.error)}
        if self.asked:
            answer["asked"] = self.asked
        if "logs" in step:
            answer["logs"] = await self.logs.until(lambda logs: len(logs) >= step["logs"])
        return answer

    async def tools(self, client, step):
        while True:
            tools = await pages(client.list_tools, "tools")
            if all(any(tool["name"].startswith(prefix) for tool in tools) for prefix in step["list"]):
                return tools
            await anyio.sleep(0.1)

    async def resources(self, client, step):
        return await pages(client.list_resources, "resources")

    async def templates(self, client, step):
        return await pages(client.list_resource_templates, "resource_templates")

    async def prompts(self, client, step):
        return await pages(client.list_prompts, "prompts")

    async def read(self, client, step):
        return {"result": plain(await client.read_resource(step["read"]))}

    async def prompt(self, client, step):
        return {"result": plain(await client.get_prompt(step["prompt"], step["arguments"]))}

    async def complete(self, client, step):
        ref = step["complete"]
        kind = types.PromptReference if ref["type"] == "ref/prompt" else types.ResourceTemplateReference
        return {"result": plain(await client.complete(kind(**ref), step["argument"], step.get("context")))}

    async def level(self, client, step):
        return {"result": plain(await client.set_logging_level(step["level"]))}

    async def watch(self, client, step):
        wanted = {*step["watch"]["uris"], *step["watch"]["lists"]}
        watching = self.listen if client.protocol_version >= "2026" else self.subscribe
        answer, changes = await watching(client, step, lambda changes: wanted <= set(changes))
        # How often a change is told is left to the server.
        return {**answer, "changes": sorted(set(changes))}

    async def subscribe(self, client, step, enough):
        for uri in step["watch"]["uris"]:
            await client.subscribe_resource(uri)
        answer = await self.call(client, step["then"])
        changes = await self.changes.until(enough)
        for uri in step["watch"]["uris"]:
            await client.unsubscribe_resource(uri)
        return answer, changes

    async def listen(self, client, step, enough):
        lists = {f"{name}_list_changed": True for name in step["watch"]["lists"]}
        async with client.listen(resource_subscriptions=step["watch"]["uris"], **lists) as subscription:
            answer = await self.call(client, step["then"])
            changes = []
            while not enough(changes):
                event = await anext(subscription)
                named = event.uri if isinstance(event, ResourceUpdated) else type(event).__name__
                changes.append(str(named).removesuffix("ListChanged").lower())
        return answer, changes

    async def call(self, client, step):
        seen = []
        answer = {}
        with anyio.CancelScope() as scope:

            async def on_progress(progress, total, message):
                seen.append([progress, total, message])
                if len(seen) == step.get("cancelAfter"):
                    scope.cancel()

            callback = on_progress if "progress" in step else None
            try:
                result = await client.call_tool(step["call"], step["arguments"], progress_callback=callback)
                answer["result"] = plain(result)
            except MCPError as error:
                answer["error"] = plain(error.error)
        if scope.cancelled_caught:
            answer["cancelled"] = True
        if "progress" in step:
            answer["progress"] = seen[: step.get("cancelAfter")]
        return answer


VERBS = {
    "list": Session.tools,
    "resources": Session.resources,
    "templates": Session.templates,
    "prompts": Session.prompts,
    "read": Session.read,
    "prompt": Session.prompt,
    "complete": Session.complete,
    "level": Session.level,
    "watch": Session.watch,
    "call": Session.call,
}


async def pages(method, items):
    """All items of a list that may come in pages."""
    seen = []
    cursor = None
    while True:
        page = await method(cursor=cursor)
        seen += [plain(item) for item in getattr(page, items)]
        cursor = page.next_cursor
        if cursor is None:
            return seen


async def main():
    task = json.load(sys.stdin)
    sessions = [Session(plan) for plan in task["sessions"]]
    if task["inTurn"]:
        return [await session.run() for session in sessions]
    return await asyncio.gather(*(session.run() for session in sessions))


print(json.dumps(asyncio.run(main())))
