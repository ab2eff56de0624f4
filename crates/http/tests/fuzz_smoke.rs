//! The fuzz targets, briefly: a few thousand inputs, made by mutating real requests, with fixed seeds so that a
//! failure comes back.

mod fuzz_targets;

const HEADS: &[&[u8]] = &[
    b"GET /a%20b/../c?x=1 HTTP/1.1\r\nHost: example.org:80\r\nAccept: text/html;q=0.5, application/json\r\n\
      Accept-Encoding: gzip, br;q=0\r\nRange: bytes=0-0,500-600,-1\r\nIf-Range: \"1-3e8-659\"\r\n\r\n",
    b"PUT /f HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\nContent-Range: bytes 5-9/10\r\n\
      Authorization: Basic dTpw\r\nIf-None-Match: *\r\n\r\n",
    b"POST /cgi/x HTTP/1.0\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\nProxy: x\r\nX_Y: z\r\n\r\n",
    b"POST /d/?expires=5&user=u&signature=00 HTTP/1.1\r\nHost: h\r\nTus-Resumable: 1.0.0\r\nUpload-Length: 9\r\n\
      Upload-Metadata: filename YQ==\r\nUpload-Offset: 5\r\nContent-Type: application/offset+octet-stream\r\n\
      Content-Length: 4\r\nUpload-Checksum: sha1 Zm9v\r\n\r\n",
    b"MOVE http://h/a HTTP/1.1\r\nHost: h\r\nDestination: /b\r\nConnection: close, keep-alive\r\n\
      If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n",
];
const SEQUENCES: &[&[u8]] = &[
    b"\x03GET /a HTTP/1.1\r\nHost: h\r\n\r\nPUT /b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcGET /c HTTP/1.1\r\nHost: h\r\n\r\n",
    b"\x07PUT /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: x\r\n\r\n\r\n\r\nGET /c HTTP/1.1\r\nHost: h\r\n\r\n",
];
const INPUTS: &[&[u8]] = &[
    // A request in two pieces, answered; time passes; the next one is the last.
    b"\x20GET /a HTTP/1.1\r\n\x20Host: h\r\n\r\n\x08\x05\x9e\x40GET /c HTTP/1.1\r\nHost: h\r\n\r\n\x08\x0a\x04",
    // A body that is wanted and taken, a second request behind it, the end of input, and a deadline.
    b"\x80PUT /b HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: h\r\n\r\n\
      \x07\x0d\x08\x05\x04\x08\x0b\x0c",
];
const HTTP2_INPUTS: &[&[u8]] = &[
    // SETTINGS and a GET, answered by a body in two frames; a window; a PING of each side; the end.
    b"\x1f\0\0\0\x04\0\0\0\0\0\0\0\x0e\x01\x05\0\0\0\x01\x82\x87\x84\x41\x01h\0\x01a\x02bc\0\0\x04\x08\0\0\0\0\0\0\0\x10\0\0\0\x08\x06\0\0\0\0\
      \0\0\x02\x08\x09\x05\x06",
    b"\x1f\0\0\x0b\x01\x04\0\0\0\x01\x42\x03PUT\x87\x84\x41\x01h\0\0\x05\0\x01\0\0\0\x01hello\x0a\x01\x04",
];
const RESPONSES: &[&[u8]] = &[
    b"\x03HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHTTP/1.1 404 x\r\n\
      Connection: close\r\nContent-Length: 0\r\n\r\n",
    b"\x07HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n\
      0\r\nT: x\r\n\r\nHTTP/1.0 200 OK\nServer: x\n\nuntil the end",
];
const HTTP2: &[&[u8]] = &[
    // SETTINGS, a GET with literal fields, WINDOW_UPDATE, PING.
    b"\x03\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\xff\xff\0\0\x0b\x01\x05\0\0\0\x01\x82\x87\x84\x41\x01h\0\x01a\x02bc\
      \0\0\x04\x08\0\0\0\0\0\0\0\x10\0\0\0\x08\x06\0\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08",
    // A PUT in two frames, one of them padded, and trailers; Huffman's code and the dynamic table; a reset.
    b"\x10\0\0\0\x04\0\0\0\0\0\0\0\x13\x01\x04\0\0\0\x01\x42\x03PUT\x87\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\
      \0\0\x05\0\0\0\0\0\x01hello\0\0\x08\0\x08\0\0\0\x01\x02hello\0\0\0\0\x05\x01\x05\0\0\0\x01\0\x01t\x01v\
      \0\0\x04\x01\x05\0\0\0\x03\x82\x87\x84\xbe\0\0\x04\x03\0\0\0\0\x03\0\0\0\x08",
];
const PROGRAMS: &[&[u8]] = &[
    b"Content-Type: text/html\nStatus: 404 Not here\nContent-Length: 5\n\nhello",
    b"Location: /a/b?c\r\n\r\n",
    b"Location: http://example.org/\nX-A: b\n\n",
];

const WEBDAV: &[&[u8]] = &[
    b"<http://h/a> (<opaquelocktoken:1> [\"2-3\"]) (Not <DAV:no-lock>) (<a>)\n\
      <D:propertyupdate xmlns:D=\"DAV:\" xmlns:z=\"http://z/\"><D:set><D:prop><z:a xml:lang=\"en\" b=\"&lt;&#10;\">t&amp;x\
      <z:b xmlns:q=\"q\" q:c=\"d\"/><!-- c --><![CDATA[<x>]]></z:a><e xmlns=\"\"/></D:prop></D:set><D:remove><D:prop>\
      <z:gone/></D:prop></D:remove></D:propertyupdate>",
    b"(<urn:uuid:1>)\n<?xml version=\"1.0\"?><lockinfo xmlns=\"DAV:\"><lockscope><exclusive/></lockscope><locktype><write/>\
      </locktype><owner xmlns:z=\"z\"><href>http://h/</href><z:x z:y=\"1\">&#x9;</z:x></owner></lockinfo>",
    b"(Not [W/\"x\"] <a>)\n<propfind xmlns=\"DAV:\"><prop><getetag/><a xmlns=\"b\"/></prop></propfind>",
];

/// xorshift64*: the same numbers everywhere and always.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as usize % bound.max(1)
    }
}

/// A seed with a few changes: bytes changed, cut out, doubled, brought in from another seed.
fn mutated(seeds: &[&[u8]], random: &mut Random) -> Vec<u8> {
    const TELLING: &[u8] = b"\r\n:; \t,\0%/.0f9\xff-=";
    let mut bytes = seeds[random.below(seeds.len())].to_vec();
    for _ in 0..=random.below(4) {
        let (at, length) = (random.below(bytes.len()), random.below(12));
        let end = bytes.len().min(at + length);
        match random.below(4) {
            0 if !bytes.is_empty() => bytes[at] = TELLING[random.below(TELLING.len())],
            1 => drop(bytes.drain(at.min(end)..end)),
            2 => {
                let piece = bytes[at.min(end)..end].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let other = seeds[random.below(seeds.len())];
                let from = random.below(other.len());
                let piece = other[from..other.len().min(from + 4 * length)].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

fn smoke(seeds: &[&[u8]], target: fn(&[u8])) {
    seeds.iter().for_each(|seed| target(seed));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..5000 {
        target(&mutated(seeds, &mut random));
    }
}

#[test]
fn heads_are_understood_in_one_way_only() {
    smoke(HEADS, fuzz_targets::head);
}

#[test]
fn sequences_are_the_same_however_they_are_cut() {
    smoke(SEQUENCES, fuzz_targets::sequence);
}

#[test]
fn a_connection_ends_whatever_its_driver_does() {
    smoke(INPUTS, fuzz_targets::inputs);
}

#[test]
fn a_server_says_whole_frames_whatever_its_driver_does() {
    smoke(HTTP2_INPUTS, fuzz_targets::http2_inputs);
}

#[test]
fn responses_are_the_same_however_they_are_cut() {
    smoke(RESPONSES, fuzz_targets::response);
}

#[test]
fn frames_mean_the_same_however_they_are_cut() {
    smoke(HTTP2, fuzz_targets::http2);
}

#[test]
fn records_of_fastcgi_say_the_same_however_they_are_cut() {
    let mut records = vec![3];
    millrace_http::fastcgi::stdout(b"Status: 200\r\n\r\nhello", &mut records);
    millrace_http::fastcgi::stderr(b"careful", &mut records);
    millrace_http::fastcgi::stdin(b"name=value", &mut records);
    millrace_http::fastcgi::end_stdin(&mut records);
    millrace_http::fastcgi::stdout(b" and more", &mut records);
    millrace_http::fastcgi::end(&mut records);
    smoke(&[&records], fuzz_targets::fastcgi_records);
}

#[test]
fn programs_bring_in_no_lines() {
    smoke(PROGRAMS, fuzz_targets::program);
}

#[test]
fn bodies_of_webdav_leave_what_stands_alone() {
    smoke(WEBDAV, fuzz_targets::webdav);
    for depth in [1000, 60_000] {
        fuzz_targets::webdav(format!("\n{}{}", "<a>".repeat(depth), "</a>".repeat(depth)).as_bytes());
        fuzz_targets::webdav(format!("{}\n", "(".repeat(depth)).as_bytes());
        let deep = format!(
            "\n<propertyupdate xmlns=\"DAV:\"><set><prop>{}{}</prop></set></propertyupdate>",
            "<a>".repeat(depth),
            "</a>".repeat(depth)
        );
        fuzz_targets::webdav(deep.as_bytes());
    }
}
