"""A receiver of webhooks on 127.0.0.1:19000 that says 200 to everything, over connections that are kept."""
import asyncio


async def answer(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
            await reader.readexactly(int(length[0].split(b":")[1]) if length else 0)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 19000)
    await server.serve_forever()


asyncio.run(main())
