#!/usr/bin/env python3
"""A mail server for tests: takes mail on loopback after STARTTLS and a login, and prints each letter as a line of JSON.

    smtp_server.py CERTIFICATE KEY USER PASSWORD

Its first line is the port. It ends with its standard input.
"""

import asyncio
import email
import json
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult


class Printer:
    async def handle_DATA(self, server, session, envelope):
        letter = email.message_from_bytes(envelope.content)
        heads = {name.lower(): value for name, value in letter.items()}
        text = letter.get_payload(decode=True).decode()
        print(json.dumps({"from": envelope.mail_from, "to": envelope.rcpt_tos, "heads": heads, "text": text}), flush=True)
        return "250 OK"


async def main():
    certificate, key, user, password = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def authenticate(server, session, envelope, mechanism, data):
        return AuthResult(success=(data.login, data.password) == (user.encode(), password.encode()), handled=False)

    def session():
        return SMTP(Printer(), hostname="localhost", tls_context=context, require_starttls=True,
                    authenticator=authenticate, auth_required=True)

    loop = asyncio.get_running_loop()
    server = await loop.create_server(session, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


asyncio.run(main())
