//! The examples of RFC 7541, appendix C, and what both sides say to each other.

use proptest::prelude::*;

use super::table::ENTRIES;
use super::{FieldDecoder, FieldEncoder, HpackError};
use crate::Status;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

/// The fields of a block.
fn decode(decoder: &mut FieldDecoder, block: &[u8]) -> Result<Vec<(String, String)>, HpackError> {
    let mut fields = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    decoder.decode(block, |name, value| {
        fields.push((text(name), text(value)));
        true
    })?;
    Ok(fields)
}

fn owned(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn fields_of_each_form_are_read() {
    let mut decoder = FieldDecoder::new(4096);
    for (hex, name, value) in [
        ("400a637573746f6d2d6b65790d637573746f6d2d686561646572", "custom-key", "custom-header"),
        ("040c2f73616d706c652f70617468", ":path", "/sample/path"),
        ("100870617373776f726406736563726574", "password", "secret"),
        ("82", ":method", "GET"),
    ] {
        assert_eq!(decode(&mut decoder, &bytes(hex)), Ok(owned(&[(name, value)])), "{hex}");
    }
}

/// Appendices C.3 and C.4: the same requests, without and with Huffman's code.
#[test]
fn requests_refer_to_those_before() {
    let plain = [
        "828684410f7777772e6578616d706c652e636f6d",
        "828684be58086e6f2d6361636865",
        "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
    ];
    let coded = [
        "828684418cf1e3c2e5f23a6ba0ab90f4ff",
        "828684be5886a8eb10649cbf",
        "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
    ];
    for blocks in [plain, coded] {
        let mut decoder = FieldDecoder::new(4096);
        let host = (":authority", "www.example.com");
        let get = (":method", "GET");
        let first = [get, (":scheme", "http"), (":path", "/"), host];
        assert_eq!(decode(&mut decoder, &bytes(blocks[0])), Ok(owned(&first)));
        let second = [&first[..], &[("cache-control", "no-cache")]].concat();
        assert_eq!(decode(&mut decoder, &bytes(blocks[1])), Ok(owned(&second)));
        let third =
            [get, (":scheme", "https"), (":path", "/index.html"), host, ("custom-key", "custom-value")];
        assert_eq!(decode(&mut decoder, &bytes(blocks[2])), Ok(owned(&third)));
    }
}

/// Appendices C.5 and C.6: a table of 256 bytes, so that entries are evicted.
#[test]
fn responses_push_out_those_before() {
    let plain = [
        "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d546e1768\
         747470733a2f2f7777772e6578616d706c652e636f6d",
        "4803333037c1c0bf",
        "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d4153\
         444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31",
    ];
    let coded = [
        "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8\
         e9ae82ae43d3",
        "4883640effc1c0bf",
        "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b\
         3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
    ];
    let cache = ("cache-control", "private");
    let location = ("location", "https://www.example.com");
    for blocks in [plain, coded] {
        let mut decoder = FieldDecoder::new(256);
        let date = ("date", "Mon, 21 Oct 2013 20:13:21 GMT");
        let first = [(":status", "302"), cache, date, location];
        assert_eq!(decode(&mut decoder, &bytes(blocks[0])), Ok(owned(&first)));
        let second = [(":status", "307"), cache, date, location];
        assert_eq!(decode(&mut decoder, &bytes(blocks[1])), Ok(owned(&second)));
        let cookie = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
        let date = ("date", "Mon, 21 Oct 2013 20:13:22 GMT");
        let third =
            [(":status", "200"), cache, date, location, ("content-encoding", "gzip"), ("set-cookie", cookie)];
        assert_eq!(decode(&mut decoder, &bytes(blocks[2])), Ok(owned(&third)));
    }
}

#[test]
fn broken_blocks_are_refused() {
    for (hex, error) in [
        ("80", HpackError::Index),
        ("be", HpackError::Index),
        ("4001", HpackError::Truncated),
        ("400161", HpackError::Truncated),
        ("ffffffffffff", HpackError::Integer),
        ("ff8080808080", HpackError::Integer),
        ("3fe21f", HpackError::Resize),
        ("8220", HpackError::Resize),
        ("048100", HpackError::Huffman),
    ] {
        assert_eq!(decode(&mut FieldDecoder::new(4096), &bytes(hex)), Err(error), "{hex}");
    }
    assert_eq!(decode(&mut FieldDecoder::new(4096), &bytes("3fe11f82")), Ok(owned(&[(":method", "GET")])));
}

#[test]
fn common_fields_take_few_bytes() {
    let mut block = Vec::new();
    FieldEncoder::new(&mut block).status(Status::OK).length(1600).field("content-type", b"text/html");
    assert_eq!(block[..4], [0x88, 0x0f, 28 - 15, 0x83]);
    assert!(block.len() <= 17, "{block:x?}");
    let mut request = Vec::new();
    FieldEncoder::new(&mut request).field(":method", b"GET").field(":scheme", b"https").field(":path", b"/");
    assert_eq!(request, [0x82, 0x87, 0x84]);
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        lines in prop::collection::vec((0..80_usize, "[a-z-]{1,12}", "[!-~]{0,200}"), 0..12),
        status in 100..600_u16,
    ) {
        let lines: Vec<(String, String)> = lines
            .into_iter()
            .map(|(at, name, value)| match ENTRIES.get(at) {
                Some((name, known)) if !name.starts_with(':') => {
                    ((*name).to_owned(), if known.is_empty() { value } else { (*known).to_owned() })
                }
                _ => (name, value),
            })
            .collect();
        let mut block = Vec::new();
        let mut encoder = FieldEncoder::new(&mut block);
        encoder.status(Status(status));
        for (name, value) in &lines {
            encoder.field(name, value.as_bytes());
        }
        let all = [owned(&[(":status", &status.to_string())]), lines].concat();
        prop_assert_eq!(decode(&mut FieldDecoder::new(4096), &block), Ok(all));
    }

    #[test]
    fn no_bytes_make_it_panic(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..8)) {
        let mut decoder = FieldDecoder::new(200);
        for block in blocks {
            let _ = decode(&mut decoder, &block);
        }
    }
}
