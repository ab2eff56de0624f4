"""A file server for each test, with pytest: `pytest test_millrace.py`."""

import ftplib
import io
import json
import os
import subprocess
import urllib.request

import pytest


@pytest.fixture
def server(tmp_path):
    """Starts Millrace on free ports over an empty folder, and ends it after the test."""
    command = [os.environ.get("MILLRACE", "millrace"), "serve", str(tmp_path), "--user", "alice:secret",
               "--ftp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ready-json", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        ready = json.loads(process.stdout.readline())
        yield {"folder": tmp_path, **ready}
        process.terminate()


def test_an_upload_by_ftp_is_a_file(server):
    ftp = ftplib.FTP()
    ftp.connect(server["ftp"][0]["host"], server["ftp"][0]["port"])
    ftp.login("alice", "secret")
    ftp.storbinary("STOR report.txt", io.BytesIO(b"hello"))
    ftp.quit()
    assert (server["folder"] / "report.txt").read_bytes() == b"hello"


def test_a_file_is_there_by_http(server):
    (server["folder"] / "report.txt").write_bytes(b"hello")
    url = server["http"][0]["url"]
    passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    passwords.add_password(None, url, "alice", "secret")
    client = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(passwords))
    assert client.open(url + "report.txt").read() == b"hello"
