//! Byte pair encoding over a GGUF vocabulary, as one more model under the `tokenizers` crate.
//!
//! The crate's own BPE wants owned strings for every token and merge, twice over; this one is built
//! from the arrays of the file into one byte table and two hash tables of ids. It also knows the
//! SentencePiece order, where the best score of a joined piece goes first.

use crate::token_table::{TokenTable, BYTE, LITERAL};
use hashbrown::HashTable;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

const NONE: u32 = u32::MAX;

/// What a text is cut into before the first merge.
#[derive(Clone, Copy, PartialEq)]
pub enum Symbols {
    Bytes,
    Characters,
}

pub enum Order {
    /// (left id, right id) to (rank, joined id); the lowest rank goes first.
    Merges(HashMap<(u32, u32), (u32, u32), ahash::RandomState>),
    /// Per id; the joined piece with the highest score goes first.
    Scores(Vec<f32>),
}

pub struct MergeModel {
    pub table: TokenTable,
    pub added: HashMap<String, u32>, // names of added tokens
    ids: TokenIds,
    order: Order,
    symbols: Symbols,
    whole_words_first: bool,
    single_bytes: [u32; 256], // the token of a byte that no character token covers
    unknown: Option<u32>,
    max_token_bytes: usize,
}

/// Bytes to id over a `TokenTable` that it does not own.
pub struct TokenIds {
    ids: HashTable<u32>,
    hasher: ahash::RandomState,
}

impl TokenIds {
    /// Added tokens are left out. Of equal tokens the first wins.
    pub fn new(table: &TokenTable) -> Self {
        let hasher = ahash::RandomState::with_seeds(1, 2, 3, 4);
        let mut ids = HashTable::with_capacity(table.len());
        for id in 0..table.len() as u32 {
            let bytes = table.get(id);
            if bytes.is_empty() || table.flags(id) & (LITERAL | BYTE) != 0 {
                continue;
            }
            ids.entry(
                hasher.hash_one(bytes),
                |other| table.get(*other) == bytes,
                |other| hasher.hash_one(table.get(*other)),
            )
            .or_insert(id);
        }
        Self { ids, hasher }
    }

    pub fn find(&self, table: &TokenTable, bytes: &[u8]) -> Option<u32> {
        self.ids.find(self.hasher.hash_one(bytes), |id| table.get(*id) == bytes).copied()
    }
}

struct Symbol {
    start: u32,
    size: u32, // 0: merged into its left neighbour
    id: u32,   // NONE: no token
    previous: u32,
    next: u32,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    left: u32,
    size: u32, // of both parts: says whether they are still what they were
    id: u32,
}

pub struct Parts {
    pub table: TokenTable,
    pub ids: TokenIds,
    pub order: Order,
    pub symbols: Symbols,
    pub whole_words_first: bool,
    pub unknown: Option<u32>,
    pub byte_tokens: [Option<u32>; 256],
    pub added: HashMap<String, u32>,
}

impl MergeModel {
    pub fn new(parts: Parts) -> Self {
        let max_token_bytes = (0..parts.table.len() as u32).map(|id| parts.table.get(id).len()).max().unwrap_or(0);
        let mut single_bytes = [NONE; 256];
        for (byte, id) in single_bytes.iter_mut().enumerate() {
            let of_text = || parts.ids.find(&parts.table, &[byte as u8]);
            *id = parts.byte_tokens[byte].or_else(of_text).unwrap_or(NONE);
        }
        Self {
            table: parts.table,
            added: parts.added,
            ids: parts.ids,
            order: parts.order,
            symbols: parts.symbols,
            whole_words_first: parts.whole_words_first,
            single_bytes,
            unknown: parts.unknown,
            max_token_bytes,
        }
    }

    pub fn find(&self, bytes: &[u8]) -> Option<u32> {
        self.ids.find(&self.table, bytes)
    }

    /// Appends the ids of one pre-token. n log n in its length.
    pub fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<(), String> {
        if text.is_empty() {
            return Ok(());
        }
        if text.len() > u32::MAX as usize / 2 {
            return Err(format!("a text of {} bytes is longer than the tokenizer takes", text.len()));
        }
        if self.whole_words_first {
            if let Some(id) = self.find(text.as_bytes()) {
                out.push(id);
                return Ok(());
            }
        }
        let mut symbols = self.initial_symbols(text);
        self.merge(text.as_bytes(), &mut symbols);
        for symbol in symbols.iter().filter(|symbol| symbol.size != 0) {
            self.emit(&text.as_bytes()[symbol.start as usize..(symbol.start + symbol.size) as usize], symbol.id, out);
        }
        Ok(())
    }

    fn initial_symbols(&self, text: &str) -> Vec<Symbol> {
        let mut symbols = Vec::with_capacity(text.len());
        let mut add = |start: usize, size: usize, id: u32| {
            let index = symbols.len() as u32;
            symbols.push(Symbol {
                start: start as u32,
                size: size as u32,
                id,
                previous: index.wrapping_sub(1),
                next: index + 1,
            });
        };
        match self.symbols {
            Symbols::Bytes => {
                for (start, byte) in text.bytes().enumerate() {
                    add(start, 1, self.single_bytes[byte as usize]);
                }
            }
            Symbols::Characters => {
                for (start, c) in text.char_indices() {
                    let size = c.len_utf8();
                    add(start, size, self.find(&text.as_bytes()[start..start + size]).unwrap_or(NONE));
                }
            }
        }
        symbols.last_mut().expect("text is not empty").next = NONE;
        symbols
    }

    fn merge(&self, text: &[u8], symbols: &mut [Symbol]) {
        let mut queue = BinaryHeap::with_capacity(symbols.len());
        queue.extend((1..symbols.len() as u32).filter_map(|right| self.candidate(text, symbols, right - 1, right)));
        while let Some(Reverse(best)) = queue.pop() {
            let left = &symbols[best.left as usize];
            let right_index = left.next;
            if left.size == 0 || right_index == NONE {
                continue;
            }
            let right = &symbols[right_index as usize];
            if left.size + right.size != best.size {
                continue; // one of the parts has grown since
            }
            let (previous, after) = (left.previous, right.next);
            symbols[right_index as usize].size = 0;
            let joined = &mut symbols[best.left as usize];
            joined.size = best.size;
            joined.id = best.id;
            joined.next = after;
            if after != NONE {
                symbols[after as usize].previous = best.left;
                queue.extend(self.candidate(text, symbols, best.left, after));
            }
            if previous != NONE {
                queue.extend(self.candidate(text, symbols, previous, best.left));
            }
        }
    }

    fn candidate(&self, text: &[u8], symbols: &[Symbol], left: u32, right: u32) -> Option<Reverse<Candidate>> {
        let (a, b) = (&symbols[left as usize], &symbols[right as usize]);
        let size = a.size + b.size;
        let (rank, id) = match &self.order {
            Order::Merges(merges) => *merges.get(&(a.id, b.id))?,
            Order::Scores(scores) => {
                if size as usize > self.max_token_bytes {
                    return None;
                }
                let id = self.find(&text[a.start as usize..(a.start + size) as usize])?;
                (rank_of_score(scores[id as usize]), id)
            }
        };
        Some(Reverse(Candidate { rank, left, size, id }))
    }

    fn emit(&self, bytes: &[u8], id: u32, out: &mut Vec<u32>) {
        if id != NONE {
            out.push(id);
        } else if bytes.iter().all(|byte| self.single_bytes[*byte as usize] != NONE) {
            out.extend(bytes.iter().map(|byte| self.single_bytes[*byte as usize]));
        } else {
            out.extend(self.unknown);
        }
    }
}

/// Orders like the score, the highest first; equal scores have equal ranks.
fn rank_of_score(score: f32) -> u32 {
    let score = if score.is_nan() { f32::MIN } else { score + 0.0 };
    let bits = score.to_bits();
    let ascending = if bits >> 31 == 0 { bits | 0x8000_0000 } else { !bits };
    !ascending
}

/// Makes the ranks of "left right" lines. Lines whose parts or result are no tokens are left out, as
/// they can never be used.
pub fn read_merges<'a>(
    lines: impl ExactSizeIterator<Item = &'a [u8]>,
    table: &TokenTable,
    ids: &TokenIds,
    append_decoded: impl Fn(&[u8], &mut Vec<u8>),
) -> Order {
    let mut merges = HashMap::with_capacity_and_hasher(lines.len(), ahash::RandomState::with_seeds(5, 6, 7, 8));
    let mut joined = Vec::new();
    for (rank, line) in lines.enumerate() {
        let Some(space) = line.iter().skip(1).position(|byte| *byte == b' ').map(|at| at + 1) else {
            continue;
        };
        joined.clear();
        append_decoded(&line[..space], &mut joined);
        let left_size = joined.len();
        append_decoded(&line[space + 1..], &mut joined);
        let parts =
            (ids.find(table, &joined[..left_size]), ids.find(table, &joined[left_size..]), ids.find(table, &joined));
        if let (Some(left), Some(right), Some(whole)) = parts {
            merges.entry((left, right)).or_insert((rank as u32, whole));
        }
    }
    Order::Merges(merges)
}
