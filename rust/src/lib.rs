//! The C side of this crate is `include/thalweg_rust.h`. Every exported function catches panics and
//! reports them as errors.

mod border;
mod engram_classes;
mod line_editor;
mod merge_model;
mod metrics;
mod pre_tokenizers;
mod template;
mod token_table;
mod tokenizer;
