#!/usr/bin/env python3
"""Makes a container image, as `docker load` and `podman load` take it, of one layer: files, and folders of the image's user.

    image.py NAME:TAG ARCHITECTURE ARCHIVE [SOURCE=PLACE]...

What the image runs is in `config.json` beside this file. The same files and SOURCE_DATE_EPOCH give the same bytes.
"""
import datetime
import hashlib
import io
import json
import os
import pathlib
import sys
import tarfile

OWN_FOLDERS = ["srv", "run/millrace", "var/lib/millrace"]

tag, architecture, archive, *files = sys.argv[1:]
time = int(os.environ["SOURCE_DATE_EPOCH"])
config = json.loads(pathlib.Path(__file__).with_name("config.json").read_text())
user, group = map(int, config["User"].split(":"))


def entry(path, mode, size=0, owner=(0, 0)):
    """Returns the head of a file or folder."""
    head = tarfile.TarInfo(path)
    head.type = tarfile.DIRTYPE if path in folders else tarfile.REGTYPE
    head.mode, head.size, head.mtime = mode, size, time
    head.uid, head.gid = owner
    return head


def packed(entries):
    """Returns a tar archive of heads and contents."""
    packed_bytes = io.BytesIO()
    with tarfile.open(fileobj=packed_bytes, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for head, content in entries:
            tar.addfile(head, io.BytesIO(content))
    return packed_bytes.getvalue()


contents = {place.strip("/"): pathlib.Path(source) for source, place in (file.split("=") for file in files)}
parents = {str(parent) for path in [*contents, *OWN_FOLDERS] for parent in pathlib.PurePath(path).parents}
folders = sorted((parents | set(OWN_FOLDERS)) - {"."})
layer = [(entry(path, 0o755, owner=(user, group) if path in OWN_FOLDERS else (0, 0)), b"") for path in folders]
for path, source in sorted(contents.items()):
    content = source.read_bytes()
    layer.append((entry(path, 0o755 if os.access(source, os.X_OK) else 0o644, len(content)), content))
layer = packed(layer)
layer_digest = hashlib.sha256(layer).hexdigest()

description = json.dumps(
    {
        "created": datetime.datetime.fromtimestamp(time, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "architecture": architecture,
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
        "history": [{"created_by": "packaging/container/image.py"}],
    }
).encode()
description_name = hashlib.sha256(description).hexdigest() + ".json"
manifest = json.dumps([{"Config": description_name, "RepoTags": [tag], "Layers": [f"{layer_digest}.tar"]}]).encode()
parts = [(description_name, description), (f"{layer_digest}.tar", layer), ("manifest.json", manifest)]
pathlib.Path(archive).write_bytes(packed((entry(name, 0o644, len(content)), content) for name, content in parts))
