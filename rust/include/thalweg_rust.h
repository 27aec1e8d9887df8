/* The C face of the crate. Slices are borrowed for the call; buffers and id vectors are owned by the
 * caller and returned with their free function. A function that fails writes one line to `error` and
 * returns null or false. All functions may be called from any thread; handles are shared freely unless
 * said otherwise. Panics never cross this border. */
#ifndef THALWEG_RUST_H_
#define THALWEG_RUST_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const uint8_t* data;
  size_t size;
} tw_slice;

typedef struct {
  uint8_t* data;
  size_t size;
  size_t capacity;
} tw_buffer;

typedef struct {
  int32_t* data;
  size_t size;
  size_t capacity;
} tw_ids;

void tw_buffer_free(tw_buffer* buffer);
void tw_ids_free(tw_ids* ids);

/* ---- tokenizer ---- */

typedef struct TwTokenizer tw_tokenizer;

typedef struct {
  tw_slice model, pre;
  const tw_slice* tokens; /* [num_tokens] */
  size_t num_tokens;
  const float* scores; /* [num_scores], 0 or num_tokens */
  size_t num_scores;
  const int32_t* types; /* [num_types], 0 or num_tokens */
  size_t num_types;
  const tw_slice* merges; /* [num_merges] */
  size_t num_merges;
  int32_t bos, eos, unknown;                 /* -1: none */
  int8_t add_bos, add_eos, add_space_prefix; /* -1: not said */
} tw_gguf_vocabulary;

enum { TW_TOKEN_SPECIAL = 1, TW_TOKEN_ADDED = 2, TW_TOKEN_BYTE = 4 };

/* The arrays live as long as the tokenizer: token i is token_bytes[token_ends[i] .. token_ends[i + 1]]. */
typedef struct {
  const uint8_t* token_bytes;
  const uint32_t* token_ends; /* [vocab_size + 1] */
  const uint8_t* token_flags; /* [vocab_size] */
  int32_t vocab_size;
  int32_t bos, eos;   /* -1: none */
  int32_t num_prefix; /* ids that add_special puts before a text */
  bool adds_bos;
  bool strips_leading_space; /* encoding puts a space before the text */
  bool splits_between_words; /* ids do not change when text is cut between a letter and a space before a letter */
} tw_tokenizer_facts_t;

/* `config_json` may be empty. */
tw_tokenizer* tw_tokenizer_from_json(tw_slice tokenizer_json, tw_slice config_json, tw_buffer* error);
/* `warning` is always written and may be empty. */
tw_tokenizer* tw_tokenizer_from_gguf(const tw_gguf_vocabulary* vocabulary, tw_buffer* warning, tw_buffer* error);
void tw_tokenizer_free(tw_tokenizer* tokenizer);
tw_tokenizer_facts_t tw_tokenizer_facts(const tw_tokenizer* tokenizer);
enum { TW_LITERALS_NOT_SPECIAL = 0, TW_LITERALS_ALL = 1, TW_LITERALS_NONE = 2 };
/* Invalid UTF-8 becomes U+FFFD, one for each maximal part of a character. `literals`: which added tokens are found
 * in the text. */
bool tw_tokenizer_encode(const tw_tokenizer* tokenizer, tw_slice text, bool add_special, int32_t literals, tw_ids* ids,
                         tw_buffer* error);
/* The id of a token by its name in the file; -1 when there is none. */
int32_t tw_tokenizer_find(const tw_tokenizer* tokenizer, tw_slice token);

/* Per token (its bytes, in id order) the class that Engram tables hash it by, numbered by first appearance. */
bool tw_engram_classes(const tw_slice* tokens, size_t num_tokens, tw_ids* classes, tw_buffer* error);

/* ---- chat template ---- */

typedef struct TwTemplate tw_template;

typedef struct {
  size_t begin, end;
} tw_span;

typedef struct {
  tw_span* data;
  size_t size;
  size_t capacity;
} tw_spans;

typedef struct {
  tw_slice messages; /* a JSON array of objects */
  tw_slice tools;    /* a JSON array, or empty */
  tw_slice kwargs;   /* a JSON object, or empty */
  bool add_generation_prompt;
  bool continue_final_message;
  const tw_slice* specials; /* [num_specials] names that are tokens only where the template writes them */
  size_t num_specials;
} tw_conversation;

tw_template* tw_template_compile(tw_slice source, tw_slice bos, tw_slice eos, tw_buffer* error);
void tw_template_free(tw_template* chat_template);
/* `hidden_specials`: message text holds names of special tokens. Then `specials` are the ranges of `text`
 * that are tokens and the rest is plain; else `specials` is empty and every name in `text` is a token. */
bool tw_template_render(const tw_template* chat_template, const tw_conversation* conversation, tw_buffer* text,
                        bool* hidden_specials, tw_spans* specials, tw_buffer* error);
void tw_spans_free(tw_spans* spans);

/* ---- metrics ---- */

typedef struct TwMetrics tw_metrics;
typedef struct TwSeries tw_series; /* one label combination of a family; lives as long as the registry */

enum { TW_COUNTER = 0, TW_GAUGE = 1, TW_HISTOGRAM = 2 };

tw_metrics* tw_metrics_new(void);
void tw_metrics_free(tw_metrics* metrics);
/* `buckets` are ascending upper bounds, used by histograms. The family's number, or -1. */
int32_t tw_metrics_add_family(const tw_metrics* metrics, int32_t kind, tw_slice name, tw_slice help,
                              const tw_slice* labels, size_t num_labels, const double* buckets, size_t num_buckets,
                              tw_buffer* error);
const tw_series* tw_metrics_series(const tw_metrics* metrics, int32_t family, const tw_slice* label_values,
                                   size_t num_label_values, tw_buffer* error);
/* Adds to a counter (not below nothing) or gauge, or observes in a histogram. */
void tw_series_record(const tw_series* series, double value);
/* Sets a gauge; brings a counter whose total is kept elsewhere up to `value`. */
void tw_series_set(const tw_series* series, double value);
/* Prometheus text format 0.0.4. */
bool tw_metrics_render(const tw_metrics* metrics, tw_buffer* text, tw_buffer* error);

/* ---- line editor: one thread at a time ---- */

typedef struct TwLineEditor tw_line_editor;

tw_line_editor* tw_line_editor_new(tw_buffer* error);
void tw_line_editor_free(tw_line_editor* editor);
/* 0: `line` is written; 1: end of input; 2: interrupted; -1: `error` is written. */
int32_t tw_line_editor_read(tw_line_editor* editor, tw_slice prompt, tw_buffer* line, tw_buffer* error);
void tw_line_editor_remember(tw_line_editor* editor, tw_slice line);

#ifdef __cplusplus
}
#endif

#endif /* THALWEG_RUST_H_ */
