//! How each kind of vocabulary cuts text before merging, by the name GGUF files give it.

use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::SplitDelimiterBehavior;

pub struct PreTokenizerKind {
    pub patterns: &'static [&'static str],
    /// A pre-token that is a token is taken as it is, without merges.
    pub whole_words_first: bool,
    /// What holds if the file does not say.
    pub adds_bos: bool,
    /// Between a letter and a space before a letter there is always a cut, and what is left of it does
    /// not depend on what is right of it.
    pub cuts_between_words: bool,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const DIGIT: &str = r"\p{N}";
const DIGITS_BY_3: &str = r"\p{N}{1,3}";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2_NO_CONTRACTIONS: &str =
    r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const SEED_CODER: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const MINICPM5: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const BAILING: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const CJK: &str = "[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+";
const DEEPSEEK3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"##,
    "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
);
const DEEPSEEK_LLM_LETTERS: &str = concat!(
    r"\s?[A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF\u0370-\u0373",
    r"\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F",
    r"\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77",
    r"\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D",
    r"\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4",
    r"\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139",
    r"\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D",
    r"\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A",
    r"\uFF41-\uFF5A\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}",
    r"\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+"
);
const DEEPSEEK_LLM_MARKS: &str = r"\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+";
const DEEPSEEK_LLM_ASIA: &str = r"[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+";
const NEWLINES_APART: &str = r"[^\n]+|[\n]+";

const fn kind(patterns: &'static [&'static str]) -> PreTokenizerKind {
    PreTokenizerKind { patterns, whole_words_first: false, adds_bos: false, cuts_between_words: true }
}

const fn taking_whole_words(kind: PreTokenizerKind) -> PreTokenizerKind {
    PreTokenizerKind { whole_words_first: true, ..kind }
}

const fn adding_bos(kind: PreTokenizerKind) -> PreTokenizerKind {
    PreTokenizerKind { adds_bos: true, ..kind }
}

const fn crossing_words(kind: PreTokenizerKind) -> PreTokenizerKind {
    PreTokenizerKind { cuts_between_words: false, ..kind }
}

pub const DEFAULT: PreTokenizerKind = kind(&[GPT2]);

/// None for a name that is not known.
pub fn by_name(name: &str) -> Option<PreTokenizerKind> {
    Some(match name {
        "default" | "gpt-2" | "phi-2" | "jina-es" | "jina-de" | "jina-v2-es" | "jina-v2-de" | "gigachat"
        | "a.x-4.0" | "mellum" | "modern-bert" | "mpt" | "olmo" | "jais" | "trillion" | "granite-docling"
        | "exaone4" | "jina-v1-en" | "jina-v2-code" | "roberta-bpe" => kind(&[GPT2]),
        "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone" | "minerva-7b" | "mellum2" => {
            kind(&[DIGIT, GPT2])
        }
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2"
        | "jina-v5-nano" => adding_bos(taking_whole_words(kind(&[LLAMA3]))),
        "dbrx" | "smaug-bpe" | "chatglm-bpe" => kind(&[LLAMA3]),
        "glm4" | "glm5" => taking_whole_words(kind(&[LLAMA3])),
        "qwen2" | "deepseek-r1-qwen" | "kormo" | "f2llmv2" | "megrez" | "stablelm2" | "hunyuan" | "solar-open"
        | "grok-2" => kind(&[QWEN2]),
        "qwen35" => kind(&[QWEN35]),
        "ufakzeka" => kind(&[QWEN2_NO_CONTRACTIONS]),
        "laguna" => kind(&[NEWLINES_APART, QWEN2]),
        "seed-coder" => kind(&[SEED_CODER]),
        "minicpm5" => taking_whole_words(kind(&[DIGITS_BY_3, MINICPM5])),
        "bailingmoe" | "bailingmoe2" | "llada-moe" => kind(&[BAILING]),
        "tekken" => adding_bos(taking_whole_words(kind(&[TEKKEN]))),
        "gpt-4o" | "llama4" | "kanana2" | "talkie" | "minimax-m2" => kind(&[GPT4O]),
        "deepseek-v3" | "hunyuan-dense" | "joyai-llm" | "hy_v4" => kind(&[DIGITS_BY_3, CJK, DEEPSEEK3]),
        "deepseek-llm" => {
            kind(&[r"[\r\n]", DEEPSEEK_LLM_LETTERS, DEEPSEEK_LLM_MARKS, r"\s+$", DEEPSEEK_LLM_ASIA, r"\p{N}+"])
        }
        "deepseek-coder" => kind(&[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_LLM_ASIA, DIGIT]),
        "falcon" => kind(&[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"]),
        "superbpe" => crossing_words(kind(&[r"\p{N}+", r"(?=(\d{3})+(?!\d))"])),
        "gemma4" => crossing_words(adding_bos(kind(&[NEWLINES_APART]))),
        _ => return None,
    })
}

/// True for a pattern of a tokenizer.json whose cuts are known to be local.
pub fn is_known_local(pattern: &str) -> bool {
    const LOCAL: &[&str] = &[
        GPT2,
        DIGIT,
        DIGITS_BY_3,
        LLAMA3,
        QWEN2,
        QWEN2_NO_CONTRACTIONS,
        QWEN35,
        SEED_CODER,
        MINICPM5,
        BAILING,
        TEKKEN,
        GPT4O,
        CJK,
        DEEPSEEK3,
        r"[\r\n]",
        r"\p{N}+",
    ];
    LOCAL.contains(&pattern)
}

pub fn build(kind: &PreTokenizerKind) -> Result<PreTokenizerWrapper, String> {
    let splits = kind
        .patterns
        .iter()
        .map(|pattern| {
            Split::new(SplitPattern::Regex((*pattern).to_owned()), SplitDelimiterBehavior::Isolated, false)
                .map(PreTokenizerWrapper::Split)
                .map_err(|e| format!("pre-tokenizer pattern: {e}"))
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(PreTokenizerWrapper::Sequence(Sequence::new(splits)))
}
