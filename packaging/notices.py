#!/usr/bin/env python3
"""Prints the licences of the crates that are linked into the program: each text once, below the crates that it is of."""
import collections
import json
import pathlib
import subprocess

metadata = json.loads(
    subprocess.check_output(
        ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform=x86_64-unknown-linux-musl"]
    )
)
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}


def linked(root):
    """Returns the packages that a package needs to run: neither its tests' nor its build scripts'."""
    found, waiting = set(), [root]
    while waiting:
        package = waiting.pop()
        if package not in found:
            found.add(package)
            waiting += [
                dependency["pkg"]
                for dependency in nodes[package]["deps"]
                if any(kind["kind"] is None for kind in dependency["dep_kinds"])
            ]
    return found


program = next(package["id"] for package in metadata["packages"] if package["name"] == "millrace")
crates = [packages[package] for package in linked(program) if packages[package]["source"]]
owners = collections.defaultdict(list)
print("Millrace links these crates of https://crates.io, besides the Rust standard library (MIT or Apache-2.0; its C")
print("library, in a static program, is musl: MIT). SQLite, which libsqlite3-sys brings along, is in the public domain.\n")
for crate in sorted(crates, key=lambda crate: (crate["name"], crate["version"])):
    name = f"{crate['name']} {crate['version']}"
    print(f"{name}: {crate['license']}")
    folder = pathlib.Path(crate["manifest_path"]).parent
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")):
            owners[path.read_text(errors="replace").strip()].append(name)
for text, names in sorted(owners.items(), key=lambda item: item[1]):
    print(f"\n{'=' * 100}\n{', '.join(sorted(set(names)))}\n{'=' * 100}\n{text}")
