//! The bytes each id stands for, in one allocation.

pub const SPECIAL: u8 = 1; // a control token: left out of decoded text on demand
pub const LITERAL: u8 = 2; // an added token: its bytes are its name, it takes no part in merges
pub const BYTE: u8 = 4; // one byte of a character that has no token of its own

#[derive(Default)]
pub struct TokenTable {
    bytes: Vec<u8>,
    ends: Vec<u32>, // starts with a 0: token i is bytes[ends[i]..ends[i + 1]]
    flags: Vec<u8>,
}

impl TokenTable {
    pub fn with_capacity(num_tokens: usize, num_bytes: usize) -> Self {
        let mut ends = Vec::with_capacity(num_tokens + 1);
        ends.push(0);
        Self { bytes: Vec::with_capacity(num_bytes), ends, flags: Vec::with_capacity(num_tokens) }
    }

    /// Appends what was written to `self.buffer()` since the last call as the next token.
    pub fn close(&mut self, flags: u8) {
        self.ends.push(self.bytes.len() as u32);
        self.flags.push(flags);
    }

    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub fn len(&self) -> usize {
        self.flags.len()
    }

    pub fn get(&self, id: u32) -> &[u8] {
        let id = id as usize;
        if id >= self.len() {
            return &[];
        }
        &self.bytes[self.ends[id] as usize..self.ends[id + 1] as usize]
    }

    pub fn flags(&self, id: u32) -> u8 {
        self.flags.get(id as usize).copied().unwrap_or(0)
    }

    pub fn raw(&self) -> (&[u8], &[u32], &[u8]) {
        (&self.bytes, &self.ends, &self.flags)
    }

    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// Whether no token holds an ASCII letter followed by a space: then no merge crosses such a place.
    pub fn never_crosses_words(&self) -> bool {
        (0..self.len() as u32)
            .all(|id| !self.get(id).windows(2).any(|pair| pair[0].is_ascii_alphabetic() && pair[1] == b' '))
    }

    /// The same for added tokens alone.
    pub fn literals_never_cross_words(&self) -> bool {
        (0..self.len() as u32).all(|id| {
            self.flags(id) & LITERAL == 0
                || !self.get(id).windows(2).any(|pair| pair[0].is_ascii_alphabetic() && pair[1] == b' ')
        })
    }
}

/// The byte that a character of a byte-level vocabulary stands for. Printable Latin-1 stands for
/// itself, the other 68 bytes are moved to U+0100 and on, in order.
pub fn byte_of_char(c: char) -> Option<u8> {
    let code = c as u32;
    match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => Some(code as u8),
        0x100..=0x120 => Some((code - 0x100) as u8),
        0x121..=0x142 => Some((code - 0x121 + 0x7F) as u8),
        0x143 => Some(0xAD),
        _ => None,
    }
}

/// The inverse of `byte_of_char`.
fn char_of_byte(byte: u8) -> char {
    let code = match byte {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => byte as u32,
        0x00..=0x20 => 0x100 + byte as u32,
        0x7F..=0xA0 => 0x121 + (byte - 0x7F) as u32,
        0xAD => 0x143,
    };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Appends what a byte-level vocabulary calls the token of `bytes`.
pub fn append_byte_level_name(bytes: &[u8], out: &mut String) {
    out.extend(bytes.iter().map(|byte| char_of_byte(*byte)));
}

/// Appends the bytes of a byte-level token; a token with a character outside the alphabet stands for
/// its own UTF-8.
pub fn append_byte_level(token: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    if let Ok(text) = std::str::from_utf8(token) {
        for c in text.chars() {
            match byte_of_char(c) {
                Some(byte) => out.push(byte),
                None => {
                    out.truncate(start);
                    out.extend_from_slice(token);
                    return;
                }
            }
        }
    } else {
        out.extend_from_slice(token);
    }
}

/// Whether a token is surely written in the byte-level alphabet: it uses one of the moved characters.
pub fn is_surely_byte_level(token: &[u8]) -> bool {
    std::str::from_utf8(token).is_ok_and(|text| {
        text.chars().all(|c| byte_of_char(c).is_some()) && text.chars().any(|c| (0x100..=0x143).contains(&(c as u32)))
    })
}

/// `<0x0A>` to its byte.
pub fn byte_token(token: &[u8]) -> Option<u8> {
    if token.len() == 6 && token.starts_with(b"<0x") && token[5] == b'>' {
        let digits = std::str::from_utf8(&token[3..5]).ok()?;
        if digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return u8::from_str_radix(digits, 16).ok();
        }
    }
    None
}

/// Appends a SentencePiece token with U+2581 as the space it stands for.
pub fn append_sentence_piece(token: &[u8], out: &mut Vec<u8>) {
    let mut rest = token;
    while !rest.is_empty() {
        if rest.starts_with("\u{2581}".as_bytes()) {
            out.push(b' ');
            rest = &rest[3..];
        } else {
            out.push(rest[0]);
            rest = &rest[1..];
        }
    }
}
