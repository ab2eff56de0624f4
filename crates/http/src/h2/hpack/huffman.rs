//! Huffman's code for text in fields (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical: its lengths determine it, so these are all that stands here, and the tables are computed by the compiler.
//! Text is decoded four bits at a time by a state machine, whose states are the inner nodes of the code's tree.

use super::HpackError;

/// Bits of the code of each byte; the last is the end of the text (EOS), which stands nowhere.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26, 30,
];

const EOS: usize = 256;

/// The inner nodes of a binary tree with 257 leaves.
const NODES: usize = 256;

/// The code of each byte, in the low bits.
const CODES: [u32; 257] = codes();

const fn codes() -> [u32; 257] {
    let mut codes = [0; 257];
    let (mut code, mut length) = (0, 1);
    while length <= 30 {
        code <<= 1;
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] == length {
                codes[symbol] = code;
                code += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    codes
}

/// A child of a node: a node, or [`LEAF`] and a byte.
type Tree = [[u16; 2]; NODES];

const LEAF: u16 = 0x8000;

/// The tree and how many ones lead to each node from the root, or [`NOT_PADDING`].
const TREE: (Tree, [u8; NODES]) = tree();

const NOT_PADDING: u8 = u8::MAX;

const fn tree() -> (Tree, [u8; NODES]) {
    let (mut tree, mut ones, mut used) = ([[0; 2]; NODES], [NOT_PADDING; NODES], 1);
    ones[0] = 0;
    let mut symbol = 0;
    while symbol < 257 {
        let (mut node, mut bit) = (0, LENGTHS[symbol]);
        while bit > 0 {
            bit -= 1;
            let side = (CODES[symbol] >> bit & 1) as usize;
            if bit == 0 {
                tree[node][side] = LEAF | symbol as u16;
            } else {
                if tree[node][side] == 0 {
                    tree[node][side] = used;
                    if side == 1 && ones[node] != NOT_PADDING {
                        ones[used as usize] = ones[node] + 1;
                    }
                    used += 1;
                }
                node = tree[node][side] as usize;
            }
        }
        symbol += 1;
    }
    (tree, ones)
}

/// What four bits lead to from a node. No code is shorter than five, so they end at most one.
#[derive(Clone, Copy)]
struct Step {
    node: u8,
    /// The byte that ended, if any.
    byte: u8,
    outcome: Outcome,
}

#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    /// In the middle of a code.
    None,
    Byte,
    /// The end of the text is no part of it (RFC 7541 section 5.2).
    Fault,
}

static STEPS: [[Step; 16]; NODES] = steps();

const fn steps() -> [[Step; 16]; NODES] {
    let mut steps = [[Step { node: 0, byte: 0, outcome: Outcome::None }; 16]; NODES];
    let mut from = 0;
    while from < NODES {
        let mut bits = 0;
        while bits < 16 {
            let (mut node, mut bit, mut step) = (from, 4, steps[from][bits]);
            while bit > 0 {
                bit -= 1;
                let child = TREE.0[node][bits >> bit & 1];
                if child & LEAF == 0 {
                    node = child as usize;
                } else {
                    node = 0;
                    let symbol = (child & !LEAF) as usize;
                    if symbol == EOS {
                        step.outcome = Outcome::Fault;
                    } else if !matches!(step.outcome, Outcome::Fault) {
                        (step.byte, step.outcome) = (symbol as u8, Outcome::Byte);
                    }
                }
            }
            step.node = node as u8;
            steps[from][bits] = step;
            bits += 1;
        }
        from += 1;
    }
    steps
}

/// Appends the text that `code` stands for. What pads its last byte is ones, seven at most.
pub fn decode(code: &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    // A code has at least five bits.
    out.reserve(code.len() * 8 / 5);
    let mut node = 0;
    for byte in code {
        for bits in [byte >> 4, byte & 15] {
            let step = STEPS[usize::from(node)][usize::from(bits)];
            match step.outcome {
                Outcome::None => {}
                Outcome::Byte => out.push(step.byte),
                Outcome::Fault => return Err(HpackError::Huffman),
            }
            node = step.node;
        }
    }
    if TREE.1[usize::from(node)] > 7 { Err(HpackError::Huffman) } else { Ok(()) }
}

/// Bytes that a text takes in the code.
pub fn encoded_length(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum();
    bits.div_ceil(8)
}

/// Appends the code of a text.
pub fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut pending, mut bits) = (0_u64, 0);
    for &byte in text {
        let length = u32::from(LENGTHS[usize::from(byte)]);
        pending = pending << length | u64::from(CODES[usize::from(byte)]);
        bits += length;
        if bits >= 32 {
            bits -= 32;
            out.extend_from_slice(&((pending >> bits) as u32).to_be_bytes());
        }
    }
    while bits >= 8 {
        bits -= 8;
        out.push((pending >> bits) as u8);
    }
    if bits > 0 {
        out.push(((pending << (8 - bits)) as u8) | (0xff >> bits));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn padding_is_the_beginning_of_the_end() {
        let decoded = |code: &[u8]| {
            let mut out = Vec::new();
            decode(code, &mut out).map(|()| out)
        };
        // '0' is 00000, 'a' 00011.
        assert_eq!(decoded(&[0b0000_0111]), Ok(b"0".to_vec()));
        assert_eq!(decoded(&[0b0001_1111]), Ok(b"a".to_vec()));
        assert_eq!(decoded(&[0b0000_0000]), Err(HpackError::Huffman), "zeros");
        assert_eq!(decoded(&[0b0000_0111, 0xff]), Err(HpackError::Huffman), "eight more");
        assert_eq!(decoded(&[0xff; 4]), Err(HpackError::Huffman), "the end itself");
        assert_eq!(decoded(&[]), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(text in prop::collection::vec(any::<u8>(), 0..100)) {
            let (mut code, mut decoded) = (Vec::new(), Vec::new());
            encode(&text, &mut code);
            prop_assert_eq!(code.len(), encoded_length(&text));
            decode(&code, &mut decoded).unwrap();
            prop_assert_eq!(decoded, text);
        }
    }
}
