"""A server on FastMCP 4: over stdio, or over HTTP with `http PORT`.

It has one of each: a plain tool, progress, a question to the user, a log line, a resource, a template and a prompt.
"""

import os
import sys
from dataclasses import dataclass

import anyio
from fastmcp import Context, FastMCP
from fastmcp.server.elicitation import AcceptedElicitation

server = FastMCP("fm", instructions="Greets and counts.")


@dataclass
class Person:
    name: str
    age: int


@server.tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool
async def count(to: int, ctx: Context) -> str:
    """Counts, and reports every number as progress."""
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"number {number}")
    return f"counted to {to}"


@server.tool
async def count_for_ever(label: str, ctx: Context) -> str:
    """Counts until it is cancelled, and writes that down."""
    number = 0
    try:
        while True:
            number += 1
            await ctx.report_progress(number)
            await anyio.sleep(0.05)
    except anyio.get_cancelled_exc_class():
        with open(os.environ["JOURNAL"], "a") as journal:
            journal.write(f"{label}\n")
        raise


@server.tool
async def introduce(ctx: Context) -> str:
    """Asks the user who they are."""
    answer = await ctx.elicit("Who are you?", Person)
    if isinstance(answer, AcceptedElicitation):
        return f"{answer.data.name} is {answer.data.age}"
    return f"the user chose to {answer.action}"


@server.tool
async def say(text: str, ctx: Context) -> str:
    """Logs a text."""
    await ctx.warning(text, logger_name="fm")
    return "said"


@server.tool
def fail() -> str:
    """Always fails."""
    raise ValueError("this tool always fails")


@server.resource("fm://motto", mime_type="text/plain")
def motto() -> str:
    """The motto of the house."""
    return "count on us"


@server.resource("fm://greeting/{name}", mime_type="text/plain")
def greeting(name: str) -> str:
    """A greeting for anybody."""
    return f"hello, {name}"


@server.prompt
def describe(thing: str) -> str:
    """Asks for a description."""
    return f"Describe {thing} in one sentence."


if sys.argv[1:2] == ["http"]:
    server.run(transport="http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False, log_level="ERROR")
else:
    server.run(transport="stdio", show_banner=False, log_level="ERROR")
