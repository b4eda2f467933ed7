"""A client of the Python SDK that signs in to a service and calls a tool. It prints the address that a person has to open,
reads the one that the browser is redirected to, and prints the results of two calls: one with the first token, one with a
token that it was made to refresh.

usage: python identity_client.py <url of the service> <redirect address> <tool>
"""

import asyncio
import sys
from urllib.parse import parse_qs, urlsplit

from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import OAuthClientMetadata

url, redirect, tool = sys.argv[1:]


class Storage:
    tokens = None
    client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


async def show(address):
    print(f"open {address}", flush=True)


async def come_back():
    line = await asyncio.to_thread(sys.stdin.readline)
    parameters = {name: values[0] for name, values in parse_qs(urlsplit(line.strip()).query).items()}
    return AuthorizationCodeResult(
        code=parameters["code"], state=parameters.get("state"), iss=parameters.get("iss")
    )


async def call(client):
    result = await client.call_tool(tool, {"text": "hello"})
    print(f"called {result.content[0].text}", flush=True)


async def main():
    metadata = OAuthClientMetadata(
        client_name="a client of the SDK",
        redirect_uris=[redirect],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
        application_type="native",
    )
    provider = OAuthClientProvider(url, metadata, Storage(), show, come_back)
    async with create_mcp_http_client(auth=provider) as http:
        async with Client(streamable_http_client(url, http_client=http), mode="legacy") as client:
            await call(client)
            # As if it had expired: the client gets a 401, and refreshes or signs in again.
            provider.context.current_tokens.access_token = "expired"
            provider.context.token_expiry_time = 1
            await call(client)


asyncio.run(main())
