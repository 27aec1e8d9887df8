//! The classes that DeepSeek-V4.1's Engram tables hash tokens by: tokens whose texts look alike share one
//! (DeepSeek-V4.1 specification, section 5.1).

use crate::border::{array, guard, TwBuffer, TwIds, TwSlice};
use crate::token_table::append_byte_level_name;
use std::collections::HashMap;
use tokenizers::normalizers::replace::{Replace, ReplacePattern};
use tokenizers::normalizers::{Lowercase, Sequence, Strip, StripAccents, NFD, NFKC};
use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper};

/// Stands for a text that is one space while texts are stripped.
const LONE_SPACE: &str = "\u{E000}";

fn replace(pattern: &str, content: &str) -> Result<NormalizerWrapper, String> {
    Replace::new(ReplacePattern::Regex(pattern.to_owned()), content).map(Into::into).map_err(|e| e.to_string())
}

fn normalizer() -> Result<Sequence, String> {
    Ok(Sequence::new(vec![
        NFKC.into(),
        NFD.into(),
        StripAccents.into(),
        Lowercase.into(),
        replace(r"[ \t\r\n]+", " ")?,
        replace(r"^ $", LONE_SPACE)?,
        Strip::new(true, true).into(),
        replace(LONE_SPACE, " ")?,
    ]))
}

/// A token that holds part of a character is known by its name in the vocabulary alone.
fn key(token: &[u8], normalizer: &Sequence) -> Result<String, String> {
    let text = String::from_utf8_lossy(token);
    if text.contains(char::REPLACEMENT_CHARACTER) {
        let mut name = String::new();
        append_byte_level_name(token, &mut name);
        return Ok(name);
    }
    let mut normalized = NormalizedString::from(&*text);
    normalizer.normalize(&mut normalized).map_err(|e| e.to_string())?;
    Ok(if normalized.get().is_empty() { text.into_owned() } else { normalized.get().to_owned() })
}

/// Per token the number of its class; classes are numbered by their first token.
fn classes<'a>(tokens: impl Iterator<Item = &'a [u8]>) -> Result<Vec<i32>, String> {
    let normalizer = normalizer()?;
    let mut known = HashMap::new();
    tokens
        .map(|token| {
            let next = known.len() as i32;
            Ok(*known.entry(key(token, &normalizer)?).or_insert(next))
        })
        .collect()
}

#[no_mangle]
pub unsafe extern "C" fn tw_engram_classes(
    tokens: *const TwSlice,
    num_tokens: usize,
    out: *mut TwIds,
    error: *mut TwBuffer,
) -> bool {
    match guard(error, || classes(array(tokens, num_tokens).iter().map(|token| token.bytes()))) {
        Some(values) => {
            out.write(TwIds::give(values));
            true
        }
        None => false,
    }
}
