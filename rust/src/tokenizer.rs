//! Tokenizers behind the C border: the pipeline of the `tokenizers` crate, from its own file format or
//! from a GGUF vocabulary.

use crate::border::{array, guard, TwBuffer, TwIds, TwSlice};
use crate::merge_model::{read_merges, MergeModel, Order, Parts, Symbols, TokenIds};
use crate::pre_tokenizers;
use crate::token_table::{
    append_byte_level, append_sentence_piece, byte_token, is_surely_byte_level, TokenTable, LITERAL, SPECIAL,
};
use serde::Deserialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use tokenizers::models::{ModelWrapper, TrainerWrapper};
use tokenizers::normalizers::prepend::Prepend;
use tokenizers::normalizers::replace::Replace;
use tokenizers::normalizers::utils::Sequence as NormalizerSequence;
use tokenizers::pre_tokenizers::metaspace::PrependScheme;
use tokenizers::{
    AddedToken, DecoderWrapper, Encoding, Model, NormalizerWrapper, PostProcessor, PostProcessorWrapper,
    PreTokenizedString, PreTokenizer, PreTokenizerWrapper, Token, TokenizerImpl,
};

/// Ids above this are refused: no model has so many, and tables are as long as the largest id.
const MAX_VOCAB_SIZE: usize = 1 << 22;

/// Words that the library's BPE remembers per thread.
const NUM_REMEMBERED_WORDS: usize = 2048;

#[derive(Clone)]
enum SharedModel {
    Merges(Arc<MergeModel>),
    Library(Arc<LibraryModel>),
}

struct LibraryModel {
    model: ModelWrapper,
    added: HashMap<String, u32>, // ids as the file gives them
}

impl Model for SharedModel {
    type Trainer = TrainerWrapper;

    fn tokenize(&self, sequence: &str) -> tokenizers::Result<Vec<Token>> {
        match self {
            Self::Library(shared) => shared.model.tokenize(sequence),
            Self::Merges(model) => {
                let mut ids = Vec::new();
                model.encode(sequence, &mut ids)?;
                Ok(ids.into_iter().map(|id| Token::new(id, String::new(), (0, 0))).collect())
            }
        }
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        match self {
            Self::Library(shared) => shared.added.get(token).copied().or_else(|| shared.model.token_to_id(token)),
            Self::Merges(model) => model.added.get(token).copied().or_else(|| model.find(token.as_bytes())),
        }
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        match self {
            Self::Library(shared) => shared.model.id_to_token(id),
            Self::Merges(model) => String::from_utf8(model.table.get(id).to_vec()).ok(),
        }
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        match self {
            Self::Library(shared) => shared.model.get_vocab(),
            Self::Merges(_) => HashMap::new(),
        }
    }

    fn get_vocab_size(&self) -> usize {
        match self {
            Self::Library(shared) => shared.model.get_vocab_size(),
            Self::Merges(model) => model.table.len(),
        }
    }

    fn save(&self, _: &Path, _: Option<&str>) -> tokenizers::Result<Vec<PathBuf>> {
        Err("a loaded tokenizer is not saved".into())
    }

    fn get_trainer(&self) -> TrainerWrapper {
        match self {
            Self::Library(shared) => shared.model.get_trainer(),
            Self::Merges(_) => unreachable!("a loaded tokenizer is not trained"),
        }
    }
}

/// Compiled patterns are large: both pipelines of a tokenizer use the same ones.
#[derive(Clone)]
struct SharedPreTokenizer(Arc<PreTokenizerWrapper>);

impl PreTokenizer for SharedPreTokenizer {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        self.0.pre_tokenize(text)
    }
}

/// Which added tokens are found in a text; the numbers are those of the C header.
#[derive(Clone, Copy)]
pub enum Literals {
    NotSpecial = 0,
    All = 1,
    None = 2,
}

impl Literals {
    fn of(number: i32) -> Result<Self, String> {
        match number {
            0 => Ok(Self::NotSpecial),
            1 => Ok(Self::All),
            2 => Ok(Self::None),
            _ => Err(format!("{number} says not which added tokens are found")),
        }
    }

    fn include(self, token: &AddedToken) -> bool {
        match self {
            Self::NotSpecial => !token.special,
            Self::All => true,
            Self::None => false,
        }
    }
}

type Pipeline = TokenizerImpl<SharedModel, NormalizerWrapper, SharedPreTokenizer, PostProcessorWrapper, DecoderWrapper>;

pub struct TwTokenizer {
    model: SharedModel,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<SharedPreTokenizer>,
    added_tokens: Vec<AddedToken>,
    pipelines: [OnceLock<Result<Pipeline, String>>; 3], // [Literals]
    library_table: Option<TokenTable>,
    bos: Option<u32>,
    eos: Option<u32>,
    prefix: Vec<u32>, // what add_special_tokens puts around a text
    suffix: Vec<u32>,
    strips_leading_space: bool,
    splits_between_words: bool,
    byte_level: bool,
}

impl TwTokenizer {
    fn table(&self) -> &TokenTable {
        match (&self.library_table, &self.model) {
            (Some(table), _) => table,
            (None, SharedModel::Merges(model)) => &model.table,
            (None, SharedModel::Library(_)) => unreachable!("a library model comes with a table"),
        }
    }

    fn pipeline(&self, literals: Literals) -> Result<&Pipeline, String> {
        self.pipelines[literals as usize]
            .get_or_init(|| {
                let mut pipeline = Pipeline::new(self.model.clone());
                pipeline.with_normalizer(self.normalizer.clone()).map_err(|e| e.to_string())?;
                pipeline.with_pre_tokenizer(self.pre_tokenizer.clone());
                let tokens = self.added_tokens.iter().filter(|token| literals.include(token)).cloned();
                pipeline.add_tokens(tokens).map_err(|e| format!("added tokens: {e}"))?;
                Ok(pipeline)
            })
            .as_ref()
            .map_err(Clone::clone)
    }

    fn encode(&self, text: &[u8], add_special: bool, literals: Literals) -> Result<Vec<i32>, String> {
        let text = String::from_utf8_lossy(text);
        let encoding = self.pipeline(literals)?.encode_fast(&*text, false).map_err(|e| e.to_string())?;
        let (prefix, suffix): (&[u32], &[u32]) = if add_special { (&self.prefix, &self.suffix) } else { (&[], &[]) };
        let mut ids = Vec::with_capacity(prefix.len() + encoding.len() + suffix.len());
        ids.extend(prefix.iter().map(|id| *id as i32));
        ids.extend(encoding.get_ids().iter().map(|id| *id as i32));
        ids.extend(suffix.iter().map(|id| *id as i32));
        Ok(ids)
    }

    fn find(&self, token: &str) -> Option<u32> {
        match &self.model {
            SharedModel::Library(_) => self.model.token_to_id(token),
            SharedModel::Merges(model) => {
                if let Some(id) = model.added.get(token) {
                    return Some(*id);
                }
                let mut bytes = Vec::new();
                if self.byte_level {
                    append_byte_level(token.as_bytes(), &mut bytes);
                } else {
                    append_sentence_piece(token.as_bytes(), &mut bytes);
                }
                model.find(&bytes)
            }
        }
    }
}

// ---- GGUF ------------------------------------------------------------------------------------------

#[repr(C)]
pub struct TwGgufVocabulary {
    model: TwSlice,
    pre: TwSlice,
    tokens: *const TwSlice,
    num_tokens: usize,
    scores: *const f32,
    num_scores: usize,
    types: *const i32,
    num_types: usize,
    merges: *const TwSlice,
    num_merges: usize,
    bos: i32,
    eos: i32,
    unknown: i32,
    add_bos: i8,
    add_eos: i8,
    add_space_prefix: i8,
}

const TYPE_UNKNOWN: i32 = 2;
const TYPE_CONTROL: i32 = 3;
const TYPE_USER_DEFINED: i32 = 4;
const TYPE_BYTE: i32 = 6;

fn flags_of_type(kind: i32) -> u8 {
    match kind {
        TYPE_UNKNOWN | TYPE_CONTROL => SPECIAL | LITERAL,
        TYPE_USER_DEFINED => LITERAL,
        _ => 0,
    }
}

fn check_length(what: &str, found: usize, needed: usize) -> Result<(), String> {
    if found != 0 && found != needed {
        return Err(format!("tokenizer.ggml.{what} has {found} entries, tokenizer.ggml.tokens has {needed}"));
    }
    Ok(())
}

fn from_gguf(vocabulary: &TwGgufVocabulary, warning: &mut String) -> Result<TwTokenizer, String> {
    // SAFETY: the header promises arrays of the lengths given, readable during the call.
    let (kind, pre, tokens, scores, types, merges) = unsafe {
        (
            vocabulary.model.text("tokenizer.ggml.model")?,
            vocabulary.pre.text("tokenizer.ggml.pre")?,
            array(vocabulary.tokens, vocabulary.num_tokens),
            array(vocabulary.scores, vocabulary.num_scores),
            array(vocabulary.types, vocabulary.num_types),
            array(vocabulary.merges, vocabulary.num_merges),
        )
    };
    if tokens.is_empty() {
        return Err("tokenizer.ggml.tokens is empty".to_owned());
    }
    if tokens.len() > MAX_VOCAB_SIZE {
        return Err(format!(
            "tokenizer.ggml.tokens has {} entries, at most {MAX_VOCAB_SIZE} are supported",
            tokens.len()
        ));
    }
    check_length("scores", scores.len(), tokens.len())?;
    check_length("token_type", types.len(), tokens.len())?;
    let scored = kind == "llama";
    let spaced = scored || kind == "gemma4" || pre == "gemma4"; // spaces are U+2581, characters not bytes
    if !spaced && kind != "gpt2" {
        return Err(format!("tokenizer.ggml.model is \"{kind}\"; supported are \"gpt2\", \"llama\" and \"gemma4\""));
    }
    if scored && scores.is_empty() {
        return Err("tokenizer.ggml.scores is missing; a \"llama\" tokenizer needs one score per token".to_owned());
    }
    if !scored && merges.is_empty() {
        return Err(format!("tokenizer.ggml.merges is missing; a \"{kind}\" tokenizer needs it"));
    }

    let num_bytes: usize = tokens.iter().map(|token| token.size).sum();
    if num_bytes > u32::MAX as usize {
        return Err(format!("tokenizer.ggml.tokens hold {num_bytes} bytes, at most {} are supported", u32::MAX));
    }
    let mut table = TokenTable::with_capacity(tokens.len(), num_bytes);
    let mut byte_tokens = [None; 256];
    let mut added_tokens = Vec::new();
    let mut added = HashMap::new();
    for (id, token) in tokens.iter().enumerate() {
        let bytes = unsafe { token.bytes() };
        let kind = types.get(id).copied().unwrap_or(1);
        let mut flags = flags_of_type(kind);
        if kind == TYPE_USER_DEFINED && !spaced && is_surely_byte_level(bytes) {
            flags = 0; // Command R lists such tokens; they are made by merges, never found in a text
        }
        if flags & LITERAL != 0 {
            table.buffer().extend_from_slice(bytes);
            if let (Ok(text), false) = (std::str::from_utf8(bytes), bytes.is_empty()) {
                added_tokens.push(AddedToken::from(text, flags & SPECIAL != 0).normalized(false));
                added.entry(text.to_owned()).or_insert(id as u32);
            }
        } else if !spaced {
            append_byte_level(bytes, table.buffer());
        } else if let Some(byte) = byte_token(bytes).filter(|_| kind == TYPE_BYTE || types.is_empty()) {
            table.buffer().push(byte);
            byte_tokens[byte as usize] = Some(id as u32);
            flags |= crate::token_table::BYTE;
        } else {
            append_sentence_piece(bytes, table.buffer());
        }
        table.close(flags);
    }
    table.shrink();

    let known = |id: i32| u32::try_from(id).ok().filter(|id| (*id as usize) < tokens.len());
    let (bos, eos, unknown) = (known(vocabulary.bos), known(vocabulary.eos), known(vocabulary.unknown));

    let named = if spaced && kind != "llama" { "gemma4" } else { pre };
    let pre_kind = if scored {
        None
    } else {
        Some(pre_tokenizers::by_name(named).unwrap_or_else(|| {
            *warning = if pre.is_empty() {
                "the file names no pre-tokenizer (tokenizer.ggml.pre); text is cut as for gpt-2, which may cost quality"
                    .to_owned()
            } else {
                format!("pre-tokenizer \"{pre}\" is not known; text is cut as for gpt-2, which may cost quality")
            };
            pre_tokenizers::DEFAULT
        }))
    };

    let ids = TokenIds::new(&table);
    let order = if scored {
        Order::Scores(scores.to_vec())
    } else {
        let lines = merges.iter().map(|line| unsafe { line.bytes() });
        read_merges(lines, &table, &ids, if spaced { append_sentence_piece } else { append_byte_level })
    };
    let splits_between_words = match &pre_kind {
        Some(kind) if kind.cuts_between_words => table.literals_never_cross_words(),
        _ => table.never_crosses_words(),
    };
    let adds_space = spaced && scored && vocabulary.add_space_prefix != 0;
    let model = MergeModel::new(Parts {
        ids,
        order,
        symbols: if spaced { Symbols::Characters } else { Symbols::Bytes },
        whole_words_first: pre_kind.as_ref().is_some_and(|kind| kind.whole_words_first),
        unknown,
        byte_tokens,
        added,
        table,
    });

    let normalizer = if spaced { Some(space_normalizer(adds_space)?) } else { None };
    let adds_bos = match vocabulary.add_bos {
        -1 => scored || pre_kind.as_ref().is_some_and(|kind| kind.adds_bos),
        flag => flag != 0,
    };
    Ok(TwTokenizer {
        model: SharedModel::Merges(Arc::new(model)),
        normalizer,
        pre_tokenizer: match &pre_kind {
            Some(kind) => Some(SharedPreTokenizer(Arc::new(pre_tokenizers::build(kind)?))),
            None => None,
        },
        added_tokens,
        pipelines: Default::default(),
        library_table: None,
        bos,
        eos,
        prefix: bos.filter(|_| adds_bos).into_iter().collect(),
        suffix: eos.filter(|_| vocabulary.add_eos == 1).into_iter().collect(),
        strips_leading_space: adds_space,
        splits_between_words: splits_between_words && !adds_space,
        byte_level: !spaced,
    })
}

/// The table holds spaces, so a U+2581 of the text, which SentencePiece cannot tell from a space,
/// becomes one.
fn space_normalizer(adds_space: bool) -> Result<NormalizerWrapper, String> {
    let replace = Replace::new("\u{2581}", " ").map_err(|e| e.to_string())?;
    let mut steps = Vec::new();
    if adds_space {
        steps.push(NormalizerWrapper::Prepend(Prepend::new(" ".to_owned())));
    }
    steps.push(NormalizerWrapper::Replace(replace));
    Ok(NormalizerWrapper::Sequence(NormalizerSequence::new(steps)))
}

// ---- tokenizer.json --------------------------------------------------------------------------------

#[derive(Deserialize)]
struct TokenizerFile {
    model: ModelWrapper,
    #[serde(default)]
    normalizer: Option<NormalizerWrapper>,
    #[serde(default)]
    pre_tokenizer: Option<PreTokenizerWrapper>,
    #[serde(default)]
    post_processor: Option<PostProcessorWrapper>,
    #[serde(default)]
    decoder: Option<DecoderWrapper>,
    #[serde(default)]
    added_tokens: Vec<NumberedToken>,
}

#[derive(Deserialize)]
struct NumberedToken {
    id: u32,
    #[serde(flatten)]
    token: AddedToken,
}

/// A token in tokenizer_config.json: its text or an object with it.
#[derive(Deserialize)]
#[serde(untagged)]
enum NamedToken {
    Text(String),
    Object { content: String },
}

impl NamedToken {
    fn content(&self) -> &str {
        match self {
            Self::Text(content) | Self::Object { content } => content,
        }
    }
}

#[derive(Deserialize, Default)]
struct ConfigFile {
    #[serde(default)]
    bos_token: Option<NamedToken>,
    #[serde(default)]
    eos_token: Option<NamedToken>,
    #[serde(default)]
    add_bos_token: Option<bool>,
    #[serde(default)]
    add_eos_token: Option<bool>,
}

/// How token strings turn into bytes, read off the decoder.
#[derive(Default)]
struct Decoding {
    byte_level: bool,
    byte_fallback: bool,
    replacements: Vec<(String, String)>,
    strips_leading_space: bool,
}

impl Decoding {
    fn of(decoder: &DecoderWrapper) -> Result<Self, String> {
        let mut decoding = Self::default();
        decoding.add(decoder)?;
        Ok(decoding)
    }

    fn add(&mut self, decoder: &DecoderWrapper) -> Result<(), String> {
        match decoder {
            DecoderWrapper::Sequence(sequence) => sequence.get_decoders().iter().try_for_each(|each| self.add(each))?,
            DecoderWrapper::ByteLevel(_) => self.byte_level = true,
            DecoderWrapper::ByteFallback(_) => self.byte_fallback = true,
            DecoderWrapper::Fuse(_) => {}
            DecoderWrapper::Metaspace(metaspace) => {
                self.replacements.push((metaspace.get_replacement().to_string(), " ".to_owned()));
                self.strips_leading_space |= metaspace.prepend_scheme != PrependScheme::Never;
            }
            DecoderWrapper::Replace(replace) => {
                // The pattern is private; the serialised form is the crate's stable file format.
                let form = serde_json::to_value(replace).map_err(|e| e.to_string())?;
                let pattern = form["pattern"]["String"]
                    .as_str()
                    .ok_or("decoder Replace with a regular expression is not supported")?;
                if pattern.is_empty() {
                    return Err("decoder Replace has an empty pattern".to_owned());
                }
                self.replacements.push((pattern.to_owned(), replace.content.clone()));
            }
            DecoderWrapper::Strip(strip) => {
                if strip.content != ' ' || strip.stop != 0 || strip.start > 1 {
                    return Err(format!(
                        "decoder Strip of {:?} ({} at the start, {} at the end) is not supported; one leading space is",
                        strip.content, strip.start, strip.stop
                    ));
                }
                self.strips_leading_space |= strip.start == 1;
            }
            DecoderWrapper::BPE(_) | DecoderWrapper::WordPiece(_) | DecoderWrapper::CTC(_) => {
                return Err("the decoder is of type BPEDecoder, WordPiece or CTC; supported are ByteLevel, Metaspace, ByteFallback, Fuse, Strip and Replace".to_owned());
            }
        }
        Ok(())
    }

    fn append(&self, token: &str, out: &mut Vec<u8>) {
        if self.byte_fallback {
            if let Some(byte) = byte_token(token.as_bytes()) {
                out.push(byte);
                return;
            }
        }
        if self.byte_level {
            append_byte_level(token.as_bytes(), out);
            return;
        }
        let mut text = std::borrow::Cow::Borrowed(token);
        for (from, to) in &self.replacements {
            if text.contains(from.as_str()) {
                text = text.replace(from.as_str(), to).into();
            }
        }
        out.extend_from_slice(text.as_bytes());
    }
}

fn from_json(tokenizer_json: &[u8], config_json: &[u8]) -> Result<TwTokenizer, String> {
    let mut file: TokenizerFile = serde_json::from_slice(tokenizer_json).map_err(|e| format!("tokenizer.json: {e}"))?;
    let config: ConfigFile = if config_json.is_empty() {
        ConfigFile::default()
    } else {
        serde_json::from_slice(config_json).map_err(|e| format!("tokenizer_config.json: {e}"))?
    };
    if let ModelWrapper::BPE(bpe) = &mut file.model {
        if bpe.dropout.is_some_and(|dropout| dropout != 0.0) {
            return Err("tokenizer.json: model.dropout is set; ids would be random".to_owned());
        }
        bpe.resize_cache(NUM_REMEMBERED_WORDS);
    }
    let decoding = match &file.decoder {
        Some(decoder) => Decoding::of(decoder).map_err(|e| format!("tokenizer.json: {e}"))?,
        None => Decoding::default(),
    };

    let vocab = file.model.get_vocab();
    let mut added = HashMap::new();
    for numbered in &file.added_tokens {
        added.entry(numbered.token.content.clone()).or_insert(numbered.id);
    }
    let largest = vocab.values().chain(added.values()).max().copied();
    let vocab_size = largest.map_or(0, |id| id as usize + 1);
    if vocab_size == 0 || vocab_size > MAX_VOCAB_SIZE {
        return Err(format!(
            "tokenizer.json has {vocab_size} ids (largest id plus one); between 1 and {MAX_VOCAB_SIZE} are supported"
        ));
    }
    let table = library_table(&vocab, &file.added_tokens, &decoding, vocab_size)?;
    drop(vocab);

    let splits_between_words = is_local(file.normalizer.as_ref(), file.pre_tokenizer.as_ref(), &table)
        && file.added_tokens.iter().all(|added| !added.token.lstrip && !added.token.rstrip && !added.token.single_word);
    let named = |token: &Option<NamedToken>| -> Option<u32> {
        let content = token.as_ref()?.content();
        added.get(content).copied().or_else(|| file.model.token_to_id(content))
    };
    let (bos, eos) = (named(&config.bos_token), named(&config.eos_token));
    let (mut prefix, mut suffix) = match &file.post_processor {
        Some(processor) => surroundings(processor)?,
        None => (Vec::new(), Vec::new()),
    };
    let bos = bos.or_else(|| prefix.first().copied());
    if let Some(adds) = config.add_bos_token {
        prefix = bos.filter(|_| adds).into_iter().collect();
    }
    if let Some(adds) = config.add_eos_token {
        suffix = eos.filter(|_| adds).into_iter().collect();
    }

    Ok(TwTokenizer {
        normalizer: file.normalizer,
        pre_tokenizer: file.pre_tokenizer.map(|each| SharedPreTokenizer(Arc::new(each))),
        added_tokens: file.added_tokens.into_iter().map(|numbered| numbered.token).collect(),
        pipelines: Default::default(),
        library_table: Some(table),
        model: SharedModel::Library(Arc::new(LibraryModel { model: file.model, added })),
        bos,
        eos,
        prefix,
        suffix,
        strips_leading_space: decoding.strips_leading_space,
        splits_between_words,
        byte_level: decoding.byte_level,
    })
}

fn library_table(
    vocab: &HashMap<String, u32>,
    added: &[NumberedToken],
    decoding: &Decoding,
    vocab_size: usize,
) -> Result<TokenTable, String> {
    let mut by_id: Vec<Option<(&str, u8)>> = vec![None; vocab_size];
    for (token, id) in vocab {
        by_id[*id as usize] = Some((token, 0));
    }
    for numbered in added {
        let flags = LITERAL | if numbered.token.special { SPECIAL } else { 0 };
        by_id[numbered.id as usize] = Some((&numbered.token.content, flags));
    }
    let mut table = TokenTable::with_capacity(vocab_size, 8 * vocab_size);
    for token in by_id {
        match token {
            Some((content, flags)) if flags & LITERAL != 0 => {
                table.buffer().extend_from_slice(content.as_bytes());
                table.close(flags);
            }
            Some((content, flags)) => {
                decoding.append(content, table.buffer());
                table.close(flags);
            }
            None => table.close(0),
        }
        if table.buffer().len() > u32::MAX as usize {
            return Err("tokenizer.json: the tokens hold more than 4 GiB".to_owned());
        }
    }
    table.shrink();
    Ok(table)
}

/// Whether text may be cut between a letter and a space before a letter without changing ids.
fn is_local(
    normalizer: Option<&NormalizerWrapper>,
    pre_tokenizer: Option<&PreTokenizerWrapper>,
    table: &TokenTable,
) -> bool {
    let joins_words = match pre_tokenizer {
        None => true,
        Some(each) => match cuts_words(each) {
            None => return false,
            Some(cuts) => !cuts,
        },
    };
    normalizer.map_or(true, is_local_normalizer)
        && if joins_words { table.never_crosses_words() } else { table.literals_never_cross_words() }
}

fn is_local_normalizer(normalizer: &NormalizerWrapper) -> bool {
    match normalizer {
        NormalizerWrapper::NFC(_)
        | NormalizerWrapper::NFD(_)
        | NormalizerWrapper::NFKC(_)
        | NormalizerWrapper::NFKD(_) => true,
        NormalizerWrapper::Sequence(sequence) => sequence.as_ref().iter().all(is_local_normalizer),
        NormalizerWrapper::Replace(replace) => serde_json::to_value(replace)
            .is_ok_and(|form| form["pattern"]["String"] == " " && form["content"] == "\u{2581}"),
        _ => false,
    }
}

/// None: not known. Some(true): there is always a cut between words. Some(false): cuts are local but
/// words may stay together.
fn cuts_words(pre_tokenizer: &PreTokenizerWrapper) -> Option<bool> {
    match pre_tokenizer {
        PreTokenizerWrapper::ByteLevel(level) => Some(level.use_regex),
        PreTokenizerWrapper::Digits(_) => Some(false),
        PreTokenizerWrapper::Split(split) => {
            let form = serde_json::to_value(split).ok()?;
            if form["pattern"]["String"] == " " && form["behavior"] == "MergedWithPrevious" {
                return Some(false); // Gemma's; its normalizer leaves no space to cut at
            }
            let pattern = form["pattern"]["Regex"].as_str()?;
            let known =
                pre_tokenizers::is_known_local(pattern) && form["behavior"] == "Isolated" && form["invert"] == false;
            known.then(|| pattern.contains(r"\s+(?!\S)"))
        }
        PreTokenizerWrapper::Sequence(sequence) => {
            let mut cuts = false;
            for each in sequence.as_ref() {
                cuts |= cuts_words(each)?;
            }
            Some(cuts)
        }
        _ => None,
    }
}

/// What a post-processor puts before and after a text.
fn surroundings(processor: &PostProcessorWrapper) -> Result<(Vec<u32>, Vec<u32>), String> {
    const PROBE: u32 = u32::MAX - 1;
    let probe = Encoding::from_tokens(vec![Token::new(PROBE, "x".to_owned(), (0, 1))], 0);
    let processed = processor.process(probe, None, true).map_err(|e| format!("tokenizer.json: post_processor: {e}"))?;
    let ids = processed.get_ids();
    let at = ids.iter().position(|id| *id == PROBE).ok_or("tokenizer.json: the post_processor drops the text")?;
    Ok((ids[..at].to_vec(), ids[at + 1..].to_vec()))
}

// ---- C border --------------------------------------------------------------------------------------

#[repr(C)]
pub struct TwTokenizerFacts {
    token_bytes: *const u8,
    token_ends: *const u32, // [vocab_size + 1]
    token_flags: *const u8, // [vocab_size]
    vocab_size: i32,
    bos: i32,
    eos: i32,
    num_prefix: i32,
    adds_bos: bool,
    strips_leading_space: bool,
    splits_between_words: bool,
}

fn id_or_minus_one(id: Option<u32>) -> i32 {
    id.map_or(-1, |id| id as i32)
}

#[no_mangle]
pub unsafe extern "C" fn tw_tokenizer_from_json(
    tokenizer_json: TwSlice,
    config_json: TwSlice,
    error: *mut TwBuffer,
) -> *mut TwTokenizer {
    guard(error, || from_json(tokenizer_json.bytes(), config_json.bytes()))
        .map_or(std::ptr::null_mut(), |tokenizer| Box::into_raw(Box::new(tokenizer)))
}

#[no_mangle]
pub unsafe extern "C" fn tw_tokenizer_from_gguf(
    vocabulary: *const TwGgufVocabulary,
    warning: *mut TwBuffer,
    error: *mut TwBuffer,
) -> *mut TwTokenizer {
    let mut text = String::new();
    let tokenizer = guard(error, || from_gguf(&*vocabulary, &mut text));
    warning.write(TwBuffer::give(text.into_bytes()));
    tokenizer.map_or(std::ptr::null_mut(), |tokenizer| Box::into_raw(Box::new(tokenizer)))
}

#[no_mangle]
pub unsafe extern "C" fn tw_tokenizer_free(tokenizer: *mut TwTokenizer) {
    if !tokenizer.is_null() {
        guard(std::ptr::null_mut(), || {
            drop(Box::from_raw(tokenizer));
            Ok(())
        });
    }
}

#[no_mangle]
pub unsafe extern "C" fn tw_tokenizer_facts(tokenizer: *const TwTokenizer) -> TwTokenizerFacts {
    let tokenizer = &*tokenizer;
    let (bytes, ends, flags) = tokenizer.table().raw();
    TwTokenizerFacts {
        token_bytes: bytes.as_ptr(),
        token_ends: ends.as_ptr(),
        token_flags: flags.as_ptr(),
        vocab_size: flags.len() as i32,
        bos: id_or_minus_one(tokenizer.bos),
        eos: id_or_minus_one(tokenizer.eos),
        num_prefix: tokenizer.prefix.len() as i32,
        adds_bos: tokenizer.bos.is_some() && tokenizer.prefix.first() == tokenizer.bos.as_ref(),
        strips_leading_space: tokenizer.strips_leading_space,
        splits_between_words: tokenizer.splits_between_words,
    }
}

#[no_mangle]
pub unsafe extern "C" fn tw_tokenizer_encode(
    tokenizer: *const TwTokenizer,
    text: TwSlice,
    add_special: bool,
    literals: i32,
    ids: *mut TwIds,
    error: *mut TwBuffer,
) -> bool {
    match guard(error, || (*tokenizer).encode(text.bytes(), add_special, Literals::of(literals)?)) {
        Some(values) => {
            ids.write(TwIds::give(values));
            true
        }
        None => false,
    }
}

/// -1 when there is no such token.
#[no_mangle]
pub unsafe extern "C" fn tw_tokenizer_find(tokenizer: *const TwTokenizer, token: TwSlice) -> i32 {
    guard(std::ptr::null_mut(), || Ok((*tokenizer).find(token.text("token")?))).map_or(-1, id_or_minus_one)
}
