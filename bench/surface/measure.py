#!/usr/bin/env python3
"""What the tools cost a model's context: all of them listed, and found by search_tools instead.

usage: measure.py URL

URL is a running service, such as http://127.0.0.1:8808 (`mcp-aggregator serve --config servers.json`). It asks for
the list of tools as clients get it at /mcp and at /mcp?surface=search, and makes ten searches; no tool is called. Prints
Markdown. A token is counted as four bytes of JSON, as the program itself does; real tokenizers differ by some tenths.
"""

import json
import sys
import urllib.request

BYTES_PER_TOKEN = 4
TASKS = [
    "create an issue in a repository",
    "read the contents of a file",
    "take a screenshot of a web page",
    "list the open merge requests",
    "send a message to a channel",
    "find pages about the roadmap",
    "show the logs of a pod",
    "get directions between two places",
    "show the history of commits",
    "convert a time to another time zone",
]


class Client:
    """A legacy client over Streamable HTTP, one request at a time."""

    def __init__(self, url):
        self.url, self.session, self.last_id = url, None, 0
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "measure", "version": "1"}}
        self.ask("initialize", hello)
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def post(self, message):
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.session:
            headers |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": "2025-11-25"}
        request = urllib.request.Request(self.url, json.dumps(message).encode(), headers)
        with urllib.request.urlopen(request, timeout=120) as response:
            self.session = response.headers.get("Mcp-Session-Id") or self.session
            return response.headers.get("Content-Type", ""), response.read().decode()

    def ask(self, method, params):
        self.last_id += 1
        kind, body = self.post({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params})
        if kind.startswith("text/event-stream"):
            events = [line.removeprefix("data:").strip() for line in body.splitlines() if line.startswith("data:")]
            messages = [json.loads(event) for event in events if event]
            answer = next(message for message in messages if message.get("id") == self.last_id)
        else:
            answer = json.loads(body)
        if "error" in answer:
            sys.exit(f"error: {method} failed: {answer['error']['message']}")
        return answer["result"]

    def tools(self):
        tools, cursor = [], None
        while True:
            page = self.ask("tools/list", {"cursor": cursor} if cursor else {})
            tools += page["tools"]
            cursor = page.get("nextCursor")
            if not cursor:
                return tools


def tokens(what):
    return len(json.dumps(what, ensure_ascii=False, separators=(",", ":")).encode()) // BYTES_PER_TOKEN


def task(client, query):
    """What a search adds to the context: the question, the answer, and the detour of the call that follows."""
    question = {"name": "search_tools", "arguments": {"query": query}}
    answer = client.ask("tools/call", question)
    # `{"name":"call_tool","arguments":{"name":…,"arguments":…}}` instead of `{"name":…,"arguments":…}`.
    return tokens(question) + tokens(answer["content"]) + tokens({"name": "call_tool", "arguments": {}})


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    base = sys.argv[1].rstrip("/")
    full = Client(f"{base}/mcp?surface=full").tools()
    small = Client(f"{base}/mcp?surface=search")
    own = small.tools()
    searches = sorted(task(small, query) for query in TASKS)
    middle, most = searches[len(searches) // 2], searches[-1]
    listed = {"full": tokens(full), "search": tokens(own)}
    print("| surface | tools listed | tokens of the list | of a task with one search | with three |")
    print("|---|---:|---:|---:|---:|")
    print(f"| full | {len(full)} | {listed['full']:,} | {listed['full']:,} | {listed['full']:,} |")
    one, three = (listed["search"] + times * middle for times in (1, 3))
    print(f"| search | {len(own)} | {listed['search']:,} | {one:,} | {three:,} |")
    print(f"\nA search adds {middle:,} tokens (the middle of {len(TASKS)}; {most:,} at most). The calls themselves and their")
    print("results cost the same on both, and are not counted.")


main()
