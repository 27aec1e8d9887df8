//! The C side of this crate is `include/thalweg_rust.h`. Every exported function catches panics and
//! reports them as errors; nothing here keeps global state.

mod border;
mod merge_model;
mod pre_tokenizers;
mod template;
mod token_table;
mod tokenizer;
