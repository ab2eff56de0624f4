"""FTPS with ftplib: a hundred transfers on one control connection.

Arguments: host, port, user, password, CA file, explicit|implicit, TLS version, C|P, reuse|fresh, how many.
"""

import ftplib
import io
import socket
import ssl
import sys

host, port, user, password, authority, door, version, level, sessions, count = sys.argv[1:]
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class Client(ftplib.FTP_TLS):
    def connect(self, *arguments, **options):
        if door == "explicit":
            return super().connect(*arguments, **options)
        self.host, self.port = host, int(port)
        self.sock = socket.create_connection((host, port), 60)
        self.af = self.sock.family
        self.sock = self.context.wrap_socket(self.sock, server_hostname=host)
        self.file = self.sock.makefile("r", encoding=self.encoding)
        self.welcome = self.getresp()
        return self.welcome

    def ntransfercmd(self, cmd, rest=None):
        connection, size = ftplib.FTP.ntransfercmd(self, cmd, rest)
        if self._prot_p:
            session = self.sock.session if sessions == "reuse" else None
            connection = self.context.wrap_socket(connection, server_hostname=host, session=session)
            assert connection.session_reused == (sessions == "reuse")
        return connection, size


context = ssl.create_default_context(cafile=authority)
context.minimum_version = context.maximum_version = VERSIONS[version]
with Client(context=context, timeout=60) as ftp:
    ftp.connect(host, int(port))
    ftp.login(user, password, secure=door == "explicit")
    ftp.voidcmd("PBSZ 0")
    ftp.prot_p() if level == "P" else ftp.prot_c()
    for number in range(int(count) // 2):
        contents = bytes([number]) * 3000
        ftp.storbinary("STOR f", io.BytesIO(contents))
        parts = []
        ftp.retrbinary("RETR f", parts.append)
        assert b"".join(parts) == contents
    assert ftp.nlst() == ["f"]
    assert ftp.sock.version() == "TLSv" + version
    ftp.delete("f")
    ftp.quit()
print("all of it works")
