#!/usr/bin/env python3
"""What 500 and more real tools cost a model's context: one command from nothing to the table.

usage: run.py [PROGRAM]

PROGRAM is mcp-aggregator (default: the one on PATH). Installs the servers of many/package.json by npm in a cache of its
own ($XDG_CACHE_HOME/mcp-aggregator-surface; their install scripts are not run), serves them with a registry that is thrown
away, waits until all are connected and every tool has its vector, and runs measure.py. Needs Node 20 and npm. No tool is
called, and no account is needed: the servers list their tools with credentials that are none.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE = 600


def install(cache):
    wanted = (HERE / "many/package.json").read_bytes()
    done = cache / "installed.json"
    if done.exists() and done.read_bytes() == wanted:
        return
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "package.json").write_bytes(wanted)
    # Browsers and the like are for calls; nothing is called.
    quiet = {"PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD": "1", "PUPPETEER_SKIP_DOWNLOAD": "1"}
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(command, cwd=cache, env=os.environ | quiet, check=True, stdout=sys.stderr)
    done.write_bytes(wanted)


def ask(url, body=None):
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def address(service):
    for line in service.stderr:
        if line.startswith("listening on "):
            return line.removeprefix("listening on ").strip()
    sys.exit("error: the service did not start")


def wait_until_ready(url):
    """All servers connected, all tools with vectors; says which are not, if that never happens."""
    began = time.monotonic()
    while True:
        servers = ask(f"{url}/api/v1/aggregator/servers")
        missing = [server["name"] for server in servers if server["status"] != "connected"]
        lacking = ask(f"{url}/api/v1/search", {"query": "file"})["metadata"]["tools_without_vectors"]
        if servers and not missing and not lacking:
            return servers
        if time.monotonic() - began > PATIENCE:
            sys.exit(f"error: not connected: {', '.join(missing) or 'none'}; tools without vectors: {lacking}")
        time.sleep(1)


def main():
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    program = sys.argv[1] if len(sys.argv) > 1 else shutil.which("mcp-aggregator")
    if not program:
        sys.exit("error: mcp-aggregator is not on PATH; name it: run.py target/release/mcp-aggregator")
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    cache = pathlib.Path(base) / "mcp-aggregator-surface"
    install(cache)
    with tempfile.TemporaryDirectory() as folder:
        # A home of their own: nobody's accounts are found there.
        surroundings = {"PATH": os.environ["PATH"], "HOME": folder, "SURFACE_BIN": str(cache / "node_modules/.bin")}
        command = [os.path.abspath(program), "serve", "--listen", "127.0.0.1:0", "--data-dir", f"{folder}/data"]
        command += ["--config", str(HERE / "many/servers.json"), "--log-file", f"{folder}/log"]
        service = subprocess.Popen(command, cwd=folder, env=surroundings, stderr=subprocess.PIPE, text=True)
        try:
            url = address(service)
            servers = wait_until_ready(url)
            counts = sorted(((server["tool_count"], server["name"]) for server in servers), reverse=True)
            print(f"{len(servers)} servers: " + ", ".join(f"{name} {count}" for count, name in counts) + "\n", flush=True)
            subprocess.run([sys.executable, str(HERE / "measure.py"), url], check=True)
        finally:
            service.terminate()
            service.wait(timeout=60)


main()
