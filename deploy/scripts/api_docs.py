#!/usr/bin/env python3
"""docs/reference/api.md from the comments of proto/tandem/v1/*.proto: usage api_docs.py [--check].

Writes the page, or with --check fails if the existing page differs.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto" / "tandem" / "v1"
PAGE = ROOT / "docs" / "reference" / "api.md"
# Who calls a service; single calls that differ beside it.
CALLERS = {
    "TandemService": "users (`tandemctl`, Python)",
    "ClusterService": "workers",
    "ClusterService.StreamSamples": "trainers",
    "ClusterService.PutLogProbs": "trainers",
    "AgentService": "agents of hosts",
    "TrainerService": "the controller",
    "RolloutService": "the controller",
    "RolloutService.BeginUpdate": "the paired trainer",
    "RolloutService.ApplyBucket": "the paired trainer",
    "RolloutService.CommitUpdate": "the paired trainer",
    "RolloutService.AbortUpdate": "the paired trainer; the controller after that trainer was lost",
    "RolloutService.GetDigests": "the paired trainer",
    "RolloutService.ReadTensor": "the paired trainer",
    "RewardService": "the controller",
}
FILES = ["controller", "trainer", "rollout", "reward", "types"]
HEAD = """# The API

Generated from the comments of `proto/tandem/v1/*.proto` by `deploy/scripts/api_docs.py`; lint keeps
the two equal. Config messages are in [config.md](config.md), the meaning of each code in
[errors.md](errors.md), a client in Python in [examples](../examples/README.md).

Every call may end with `UNAVAILABLE` or `DEADLINE_EXCEEDED` (no answer from the peer), `INTERNAL` (a
bug), over a loopback port without the run's token `UNAUTHENTICATED`, and with mutual TLS on
`PERMISSION_DENIED`, where the caller's role may not make it ([who may call](../guides/security.md)). Server
reflection and health checks are on: `grpcurl -plaintext unix:RUN_DIR/controller.sock list` works.
"""
CODE = re.compile(r"\b(INVALID_ARGUMENT|FAILED_PRECONDITION|NOT_FOUND|ABORTED|DATA_LOSS|CANCELLED|"
                  r"RESOURCE_EXHAUSTED|UNAVAILABLE|DEADLINE_EXCEEDED|INTERNAL|UNAUTHENTICATED|"
                  r"ALREADY_EXISTS|PERMISSION_DENIED)\b")
RPC = re.compile(r"rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\);")
FIELD = re.compile(r"((?:repeated |optional )?(?:map<[^>]+>|[\w.]+)) (\w+) = \d+;\s*(?://\s*(.*))?$")
VALUE = re.compile(r"([A-Z][A-Z0-9_]*) = \d+;\s*(?://\s*(.*))?$")


def parse(text):
    """(comment of the file, blocks). A block: kind, name, comment, items [(text, comment)]."""
    head, blocks, stack, comment = [], [], [], []
    for line in (raw.strip() for raw in text.splitlines()):
        if line.startswith("//"):
            comment.append(line[2:].strip())
            continue
        opened = re.match(r"(service|message|enum|oneof) (\w+) \{(\})?$", line)
        if opened:
            kind, name, closed = opened.groups()
            if kind != "oneof":
                outer = [b["name"] for b in stack if b["kind"] != "oneof"]
                block = {"kind": kind, "name": ".".join(outer[-1:] + [name]),
                         "comment": " ".join(comment), "items": []}
                blocks.append(block)
            else:
                block = dict(stack[-1], kind="oneof")
            if not closed:
                stack.append(block)
        elif line == "}":
            stack.pop()
        elif line.startswith("syntax"):
            head = comment
        elif stack and line:
            stack[-1]["items"].append((line, " ".join(comment)))
        comment = []
    return " ".join(head), blocks


def code(text):
    text = re.sub(r" {2,}", "\n\n", text)  # an empty comment line
    return CODE.sub(r"`\1`", text.replace("|", "\\|"))


def service_text(service):
    name = service["name"]
    lines = [f"\n## {name}\n", f"Called by {CALLERS[name]}. {code(service['comment'])}".strip(), ""]
    for item, comment in service["items"]:
        rpc, in_stream, request, out_stream, reply = RPC.match(item).groups()
        caller = CALLERS.get(f"{name}.{rpc}")
        lines += [f"### {name}.{rpc}\n",
                  f"`{in_stream or ''}{request}` → `{out_stream or ''}{reply}`"
                  + (f" · called by {caller}" if caller else "") + "\n", code(comment) + "\n"]
    return lines


def message_text(block):
    """A table of the fields, or one line where there are none."""
    lines = [f"\n#### {block['name']}\n"]
    if block["comment"]:
        lines.append(code(block["comment"]) + "\n")
    rows = []
    for item, comment in block["items"]:
        if item.startswith("reserved "):
            continue  # numbers that fields had once
        match = VALUE.match(item) if block["kind"] == "enum" else FIELD.match(item)
        if match is None:
            raise SystemExit(f"api_docs.py does not understand \"{item}\" of {block['name']}")
        groups = match.groups()
        note = code(" ".join(part for part in (comment, groups[-1]) if part))
        rows.append(f"| `{groups[0]}` | {note} |" if block["kind"] == "enum"
                    else f"| `{groups[1]}` | `{groups[0]}` | {note} |")
    if not rows:
        return lines + ["No fields."]
    title = "| value | meaning |\n|---|---|" if block["kind"] == "enum" \
        else "| field | type | meaning |\n|---|---|---|"
    return lines + [title, *rows]


def page():
    lines, seen = [HEAD], set()
    for stem in FILES:
        head, blocks = parse((PROTO / f"{stem}.proto").read_text())
        services = [b for b in blocks if b["kind"] == "service"]
        if len(services) == 1 and head:
            services[0]["comment"] = f"{head} {services[0]['comment']}"
        for service in services:
            seen.add(service["name"])
            lines += service_text(service)
        lines.append(f"\n### Messages of {stem}.proto")
        for block in blocks:
            if block["kind"] != "service":
                lines += message_text(block)
    known = {name.split(".")[0] for name in CALLERS}
    if seen != known:
        raise SystemExit(f"api_docs.py: CALLERS and the protos differ in {seen ^ known}")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def main():
    text = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text)
        return 0
    if PAGE.exists() and PAGE.read_text() == text:
        print("api: docs/reference/api.md is up to date")
        return 0
    print("docs/reference/api.md differs from proto/: run deploy/scripts/api_docs.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
