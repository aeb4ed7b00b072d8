#!/usr/bin/env python3
"""The keys of a verl checkout: usage verl_keys.py check|write CHECKOUT...

A checkout is a folder with verl/trainer/config and, where it is a clone and no package, examples/grpo_trainer.

check: says which keys of verl's ppo_trainer.yaml and of the scripts in examples/grpo_trainer neither
`tandemctl config explain` nor its rules know, and ends with 1 if there are any.
write: prints common/config/verl/known_keys.inc, the union of all checkouts with the default of the first that has a
key. No text of verl is copied: names of keys and their defaults are facts.

Needs PyYAML and, for check, build/bin/tandemctl. CI has no verl, and does not run it.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAINER = "verl/trainer/config/_generated_ppo_trainer.yaml"
# A word of a script that is an override: a section of verl's configuration, a key, and what follows.
OVERRIDE = re.compile(
    r"""(?m)(?:^|[\s"'])[+~]{0,2}((?:actor_rollout_ref|data|algorithm|trainer|critic|reward\w*|custom_reward_function"""
    r"""|ray_\w+|global_profiler|transfer_queue|hydra|distillation|rollout|skip|sandbox_fusion)\.[\w.-]+)=""")
# Engines that have no part here: each is one rule, whatever keys it has.
OTHER_ENGINES = re.compile(r"^actor_rollout_ref\.(actor|ref)\.(megatron|veomni|engine)\.")


def leaves(node, prefix=""):
    """Yields dotted keys and values; an empty mapping is a value."""
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from leaves(value, f"{prefix}{key}.")
    else:
        yield prefix[:-1], node


def keys_of(checkout):
    """Dotted key to its default as JSON, or to None where only a script has it."""
    found = {}
    for key, value in leaves(yaml.safe_load((checkout / TRAINER).read_text())):
        found[key] = json.dumps(value)
    for script in sorted((checkout / "examples" / "grpo_trainer").glob("*.sh")):
        for key in OVERRIDE.findall(script.read_text()):
            if not OTHER_ENGINES.match(key):
                found.setdefault(key, None)
    return found


def version_of(checkout):
    version = (checkout / "verl/version/version").read_text().strip()
    commit = checkout / "COMMIT"
    return f"{version} ({commit.read_text().strip()[:8]})" if commit.exists() else version


def write(checkouts):
    union = {}
    for checkout in checkouts:
        for key, value in keys_of(checkout).items():
            if union.get(key) is None:
                union[key] = value
    versions = ", ".join(version_of(checkout) for checkout in checkouts)
    print("// Made by deploy/scripts/verl_keys.py write: key, and verl's default as JSON; nullptr where only a script of")
    print("// examples/grpo_trainer has it.")
    print(f'TANDEM_VERL_VERSIONS("{versions}")')
    for key in sorted(union):
        value = "nullptr" if union[key] is None else json.dumps(union[key])
        print(f"TANDEM_VERL_KEY({json.dumps(key)}, {value})")


def check(checkouts, tandemctl):
    keys = sorted({key for checkout in checkouts for key in keys_of(checkout)})
    unknown = [key for key in keys
               if subprocess.run([tandemctl, "config", "explain", key], capture_output=True).returncode != 0]
    for key in unknown:
        print(f"unknown: {key}")
    print(f"verl keys: {len(keys)} of {', '.join(map(version_of, checkouts))}, {len(unknown)} unknown")
    return 1 if unknown or not keys else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["check", "write"])
    parser.add_argument("checkout", nargs="+", type=pathlib.Path)
    parser.add_argument("--tandemctl", default=str(ROOT / "build/bin/tandemctl"))
    options = parser.parse_args()
    for checkout in options.checkout:
        if not (checkout / TRAINER).exists():
            parser.error(f"{checkout} is no checkout of verl: it has no {TRAINER}")
    if options.action == "write":
        write(options.checkout)
        return 0
    return check(options.checkout, options.tandemctl)


if __name__ == "__main__":
    sys.exit(main())
