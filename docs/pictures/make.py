#!/usr/bin/env python3
"""Makes the pictures of docs/documents.md from a real run.

    python3 docs/pictures/make.py target/release/mcp-aggregator

A document is run with the two servers that `mcp-aggregator demo` has; what it says in a terminal, and the document
before and after, become SVG. Only times are made the same every time.
"""

import html
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
DOCUMENT = """# Friday

How long is it to Christmas Eve?

```calc
tool: days_between
from: 2026-11-16
to: 2026-12-24
```

And how much is left of 1,000 for 12 presents?

```calc display=collapsed
tool: evaluate
expression: 1000 - 12 * 49.90
```
"""
WIDTH, LINE, GAP = 8.4, 20, 24


def steady(text):
    """The same text at any time on any machine."""
    text = re.sub(r"\b\d{4}-\d\d-\d\dT[\d:]+Z", "2026-11-16T09:00:00Z", text)
    text = re.sub(r"ms=\d+", "ms=3", text)
    return re.sub(r"\b\d+ ms", "3 ms", text)


def colour(line, is_terminal):
    if is_terminal:
        return "#9ece6a" if ": done" in line else "#f0f0f0" if line.startswith("$") else "#b8bdc9"
    if line.startswith("<!--"):
        return "#8a8f98"
    if line.startswith("#"):
        return "#0b57d0"
    return "#1f2328" if not line.startswith("```") else "#7a3e9d"


def panel(title, lines, x, columns, rows, is_terminal, fresh=()):
    """A box with lines in it; those in `fresh` stand on a tinted ground."""
    width, height = columns * WIDTH + 2 * GAP, rows * LINE + 3 * GAP
    ground, frame, ink = ("#1a1b26", "#1a1b26", "#b8bdc9") if is_terminal else ("#ffffff", "#d0d7de", "#57606a")
    parts = [
        f'<rect x="{x:.1f}" y="0.5" width="{width:.1f}" height="{height}" rx="8" fill="{ground}" stroke="{frame}"/>',
        f'<text x="{x + GAP:.1f}" y="{GAP + 4}" fill="{ink}" font-weight="bold">{html.escape(title)}</text>',
    ]
    for number, line in enumerate(lines):
        y = 2 * GAP + (number + 1) * LINE - 4
        if number in fresh:
            parts.append(f'<rect x="{x + 8:.1f}" y="{y - 15}" width="{width - 16:.1f}" height="{LINE}" fill="#e6f4ea"/>')
        shown = html.escape(line if len(line) <= columns else line[: columns - 1] + "\u2026")
        fill = colour(line, is_terminal)
        parts.append(f'<text x="{x + GAP:.1f}" y="{y}" fill="{fill}" xml:space="preserve">{shown}</text>')
    return width, height, "\n".join(parts)


def picture(name, about, panels):
    """Panels side by side, as a file."""
    width = sum(part[0] for part in panels) + GAP * (len(panels) - 1) + 1
    height = max(part[1] for part in panels) + 1
    body = "\n".join(part[2] for part in panels)
    (HERE / name).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" font-family="ui-monospace, Menlo, Consolas, monospace" '
        f'font-size="14">\n<title>{html.escape(about)}</title>\n{body}\n</svg>\n'
    )


def main(program):
    program = str(pathlib.Path(program).resolve())
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        notes = folder / "notes"
        notes.mkdir()
        (notes / "welcome.md").write_text("# Welcome\n\nThis note is part of the demo.\n")
        server = lambda name: {"command": program, "args": ["demo-server", name, "--dir", str(notes)]}
        config = folder / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {"calc": server("calc"), "notes": server("notes")}}))
        document = folder / "friday.md"
        document.write_text(DOCUMENT)
        command = [program, "run", document.name, "--config", config.name]
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
        after = steady(document.read_text()).splitlines()
        said = ["$ mcp-aggregator run friday.md --config mcp.json", *steady(ran.stderr).splitlines()]
    before = DOCUMENT.splitlines()
    fresh, inside = set(), False
    for number, line in enumerate(after):
        inside = inside or line.startswith("<!-- mcp-result")
        if inside:
            fresh.add(number)
        inside = inside and not line.startswith("<!-- /mcp-result")
    rows = max(len(before), len(after))
    left = panel("friday.md", before, 0.5, 50, rows, False)
    right = panel("friday.md, after `mcp-aggregator run friday.md`", after, left[0] + GAP, 82, rows, False, fresh)
    about = "A Markdown document with two blocks that call tools, before and after a run: each result stands under its block"
    picture("before-after.svg", about, [left, right])
    columns = max(len(line) for line in said) + 1
    picture("run.svg", "What a run says in a terminal, block by block", [panel("terminal", said, 0.5, columns, len(said), True)])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
