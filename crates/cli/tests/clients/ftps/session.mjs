// FTPS with basic-ftp: a hundred transfers on one control connection.
// Arguments: host, explicit port, implicit port, user, password, CA file, how many.
import { Client } from "basic-ftp"
import { readFileSync } from "node:fs"
import { Readable, Writable } from "node:stream"
import assert from "node:assert"

const [host, explicit, implicit, user, password, authority, count] = process.argv.slice(2)
const ca = readFileSync(authority)

async function session(secure, port, version) {
    const client = new Client(60000)
    const secureOptions = { ca, minVersion: version, maxVersion: version }
    await client.access({ host, port: Number(port), user, password, secure, secureOptions })
    for (let number = 0; number < Number(count) / 2; number++) {
        const contents = Buffer.alloc(3000, number)
        await client.uploadFrom(Readable.from([contents]), "f")
        const parts = []
        const back = new Writable({ write(part, _, done) { parts.push(part); done() } })
        await client.downloadTo(back, "f")
        assert(Buffer.concat(parts).equals(contents))
    }
    assert.equal((await client.list()).length, 1)
    await client.remove("f")
    client.close()
}

for (const version of ["TLSv1.2", "TLSv1.3"]) {
    await session(true, explicit, version)
    await session("implicit", implicit, version)
}
console.log("all of it works")
