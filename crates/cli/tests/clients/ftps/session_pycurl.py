"""FTPS with libcurl built with GnuTLS: many transfers on one control connection.

Arguments: host, port, user, password, CA file, explicit|implicit, TLS version or any, C|P, how many.
"""

import io
import sys

import pycurl

host, port, user, password, authority, door, version, level, count = sys.argv[1:]
assert "GnuTLS" in pycurl.version, pycurl.version
scheme = {"explicit": "ftp", "implicit": "ftps"}[door]
VERSIONS = {
    "1.2": pycurl.SSLVERSION_TLSv1_2 | pycurl.SSLVERSION_MAX_TLSv1_2,
    "1.3": pycurl.SSLVERSION_TLSv1_3 | pycurl.SSLVERSION_MAX_TLSv1_3,
    "any": pycurl.SSLVERSION_DEFAULT,
}


def perform(multi, curl):
    """As curl.perform(), which sleeps for a second where a reply comes before it begins to wait (libcurl 7.88)."""
    multi.add_handle(curl)
    running = 1
    while running:
        _, running = multi.perform()
        if running:
            multi.select(0.002)
    _, _, failed = multi.info_read()
    multi.remove_handle(curl)
    assert not failed, failed


multi, curl = pycurl.CurlMulti(), pycurl.Curl()
curl.setopt(pycurl.URL, f"{scheme}://{host}:{port}/f")
curl.setopt(pycurl.USERPWD, f"{user}:{password}")
curl.setopt(pycurl.CAINFO, authority)
curl.setopt(pycurl.SSLVERSION, VERSIONS[version])
curl.setopt(pycurl.USE_SSL, pycurl.USESSL_ALL if level == "P" else pycurl.USESSL_CONTROL)
for number in range(int(count) // 2):
    contents = bytes([number]) * 3000
    curl.setopt(pycurl.UPLOAD, True)
    curl.setopt(pycurl.READDATA, io.BytesIO(contents))
    perform(multi, curl)
    curl.setopt(pycurl.UPLOAD, False)
    back = io.BytesIO()
    curl.setopt(pycurl.WRITEDATA, back)
    perform(multi, curl)
    assert back.getvalue() == contents
print("all of it works")
