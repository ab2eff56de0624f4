//! Each side decodes what the other encodes, for any division of the input.

use proptest::prelude::*;

use super::*;
use crate::ascii;

fn coding(representation: Type, structure: Structure, mode: Mode) -> Coding {
    Coding { representation, structure, mode }
}

fn block() -> Coding {
    coding(Type::Image, Structure::File, Mode::Block)
}

fn deflate() -> Coding {
    coding(Type::Image, Structure::File, Mode::Deflate { level: 6 })
}

fn encoded(coding: Coding, pieces: &[&[u8]]) -> Vec<u8> {
    let (mut encoder, mut out) = (Encoder::new(coding, 0), Vec::new());
    pieces.iter().for_each(|piece| encoder.encode(piece, &mut out));
    encoder.finish(&mut out);
    out
}

/// Decodes `wire`, given in these pieces, with at most `most` bytes a call, as a server would.
fn decoded(coding: Coding, pieces: &[&[u8]], most: usize) -> Result<Vec<u8>, CodecError> {
    let (mut decoder, mut file) = (Decoder::new(coding, 0), Vec::new());
    for piece in pieces {
        let mut rest = *piece;
        loop {
            let mut out = Vec::new();
            let progress = decoder.decode(rest, &mut out, most)?;
            assert!(out.len() <= most + 2, "{} bytes where {most} were asked for", out.len());
            file.extend(out);
            match progress {
                Decoded::Hungry => break,
                Decoded::EndOfFile { consumed } if consumed == rest.len() => break,
                Decoded::EndOfFile { consumed: 0 } => return Err(CodecError::TrailingData),
                Decoded::Full { consumed }
                | Decoded::Marker { consumed, .. }
                | Decoded::EndOfFile { consumed } => rest = &rest[consumed..],
            }
        }
    }
    decoder.finish(&mut file)?;
    assert_eq!(decoder.position(), file.len() as u64);
    Ok(file)
}

fn any_coding() -> impl Strategy<Value = Coding> {
    let types = prop::sample::select(vec![Type::Ascii, Type::Ebcdic, Type::Image]);
    let structures = prop::sample::select(vec![Structure::File, Structure::Record]);
    let modes = prop::sample::select(vec![
        Mode::Stream,
        Mode::Block,
        Mode::Deflate { level: 0 },
        Mode::Deflate { level: 9 },
    ]);
    (types, structures, modes)
        .prop_map(|(representation, structure, mode)| coding(representation, structure, mode))
}

/// Bytes dense in what codings give a meaning to.
fn file() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(
        prop_oneof![prop::sample::select(&b"\n\r\xff\x15\x01\x02a"[..]), any::<u8>()],
        0..300,
    )
}

#[test]
fn only_image_file_stream_is_plain() {
    assert!(Coding::PLAIN.is_plain());
    assert!(!Coding::default().is_plain() && !block().is_plain() && !deflate().is_plain());
    assert!(Coding::default().ends_with_close() && !block().ends_with_close());
}

#[test]
fn a_file_that_ends_without_saying_so_is_truncated() {
    for coding in [block(), deflate(), coding(Type::Image, Structure::Record, Mode::Stream)] {
        let wire = encoded(coding, &[b"some text\nand more"]);
        assert!(decoded(coding, &[&wire], 100).is_ok());
        for length in 0..wire.len() {
            let result = decoded(coding, &[&wire[..length]], 100);
            assert_eq!(result, Err(CodecError::Truncated), "{coding:?}, {length} of {}", wire.len());
        }
    }
}

#[test]
fn data_after_the_end_is_left_for_the_next_file_in_block_mode() {
    let wire = [encoded(block(), &[b"one"]), encoded(block(), &[b"two"])].concat();
    let (mut decoder, mut out) = (Decoder::new(block(), 0), Vec::new());
    assert_eq!(decoder.decode(&wire, &mut out, 100), Ok(Decoded::EndOfFile { consumed: wire.len() / 2 }));
    assert_eq!(out, b"one");
    assert_eq!(decoder.decode(&wire[9..], &mut out, 100), Ok(Decoded::EndOfFile { consumed: 0 }));
}

#[test]
fn data_after_the_end_is_an_error_elsewhere() {
    for coding in [deflate(), coding(Type::Image, Structure::Record, Mode::Stream)] {
        let wire = [&encoded(coding, &[b"one"])[..], b"two"].concat();
        assert_eq!(decoded(coding, &[&wire], 100), Err(CodecError::TrailingData));
    }
}

#[test]
fn restart_markers_name_the_offset_in_the_file() {
    let coding = coding(Type::Ascii, Structure::File, Mode::Block);
    let (mut encoder, mut wire) = (Encoder::new(coding, 100).with_markers(4), Vec::new());
    encoder.encode(b"ab\ncd", &mut wire);
    encoder.encode(b"\r\r\nef", &mut wire);
    encoder.finish(&mut wire);
    let (mut decoder, mut out, mut markers) = (Decoder::new(coding, 100), Vec::new(), Vec::new());
    let mut rest = &wire[..];
    loop {
        match decoder.decode(rest, &mut out, 100).unwrap() {
            Decoded::Marker { consumed, marker, position } => {
                markers.push((String::from_utf8(marker).unwrap(), position));
                rest = &rest[consumed..];
            }
            other => break assert_eq!(other, Decoded::EndOfFile { consumed: rest.len() }),
        }
    }
    // The second would stand at 108, had the file had no CR LF: one byte less arrives.
    assert_eq!(markers, [("104".to_owned(), 104), ("108".to_owned(), 107)]);
    assert_eq!(out, b"ab\ncd\r\nef");
}

#[test]
fn no_marker_comes_between_cr_and_lf() {
    let coding = coding(Type::Ascii, Structure::File, Mode::Block);
    let (mut encoder, mut wire) = (Encoder::new(coding, 0).with_markers(2), Vec::new());
    encoder.encode(b"a\r\nb", &mut wire);
    assert_eq!(wire, b"\0\0\x02a\r\0\0\x01\n\x10\0\x013\0\0\x01b");
}

#[test]
fn rest_in_ascii_counts_wire_bytes() {
    let whole = encoded(Coding::default(), &[b"a\nbc\n\nd"]);
    for count in 0..whole.len() + 3 {
        let (mut encoder, mut out) = (Encoder::new(Coding::default(), 0).skipping(count as u64), Vec::new());
        encoder.encode(b"a\nb", &mut out);
        encoder.encode(b"c\n\nd", &mut out);
        encoder.finish(&mut out);
        assert_eq!(out, whole[count.min(whole.len())..]);
    }
}

#[test]
fn a_deflate_bomb_comes_out_in_pieces() {
    let bomb = encoded(deflate(), &[&vec![0; 8 << 20]]);
    assert!(bomb.len() < 16 << 10);
    let (mut decoder, mut rest, mut total, mut out) = (Decoder::new(deflate(), 0), &bomb[..], 0, Vec::new());
    loop {
        out.clear();
        let progress = decoder.decode(rest, &mut out, 65_536).unwrap();
        assert!(out.len() <= 65_536 && out.capacity() <= 1 << 18);
        total += out.len();
        match progress {
            Decoded::Full { consumed } => rest = &rest[consumed..],
            other => break assert_eq!(other, Decoded::EndOfFile { consumed: rest.len() }),
        }
    }
    assert_eq!(total, 8 << 20);
}

#[test]
fn a_wrong_checksum_is_corrupt() {
    let mut wire = encoded(deflate(), &[b"some text"]);
    *wire.last_mut().unwrap() ^= 1;
    assert_eq!(decoded(deflate(), &[&wire], 100), Err(CodecError::Corrupt));
}

proptest! {
    #[test]
    fn every_coding_brings_a_file_back_however_it_is_cut(
        coding in any_coding(), file in file(), cut in 0..300usize, wire_cut in 0..600usize, most in 1..400usize,
    ) {
        let (left, right) = file.split_at(cut.min(file.len()));
        let wire = encoded(coding, &[left, right]);
        let (first, second) = wire.split_at(wire_cut.min(wire.len()));
        let back = decoded(coding, &[first, second], most).unwrap();
        let is_text = coding.representation == Type::Ascii && coding.structure == Structure::File;
        if !is_text {
            prop_assert_eq!(back, file);
        } else {
            // Sending leaves CR LF as it is, receiving makes LF of it.
            let mut expected = Vec::new();
            let mut converter = ascii::FromNetwork::default();
            converter.convert(&file, &mut expected);
            converter.finish(&mut expected);
            prop_assert_eq!(back, expected);
        }
    }

    #[test]
    fn the_output_of_an_encoder_is_bounded(coding in any_coding(), file in file()) {
        let mut out = Vec::new();
        let mut encoder = Encoder::new(coding, 0);
        encoder.encode(&file, &mut out);
        prop_assert!(out.len() <= 4 * file.len() + 32 * 1024);
        prop_assert_eq!(encoder.position(), file.len() as u64);
    }

    #[test]
    fn any_bytes_end_in_progress_or_an_error(
        coding in any_coding(), wire in prop::collection::vec(prop_oneof![prop::sample::select(&b"\xff\x10\x40\x80\0\x01\x78\x9c"[..]), any::<u8>()], 0..200), most in 1..50usize,
    ) {
        let mut decoder = Decoder::new(coding, 0);
        let (mut rest, mut out, mut turns) = (&wire[..], Vec::new(), 0);
        loop {
            turns += 1;
            prop_assert!(turns < 10_000, "it stands still");
            match decoder.decode(rest, &mut out, most) {
                Ok(Decoded::Full { consumed } | Decoded::Marker { consumed, .. }) => rest = &rest[consumed..],
                Ok(Decoded::Hungry | Decoded::EndOfFile { .. }) | Err(_) => break,
            }
        }
        let _ = decoder.finish(&mut out);
    }
}
