// The text of an answer as it is generated, taken apart into reasoning, content and tool calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "thalweg/error.h"

namespace thalweg::text {

struct ToolCallDelta {
  std::int32_t index = 0;  // of the call in the answer
  std::string name;        // in the first delta of a call, empty in later ones
  std::string arguments;   // a piece of JSON; the pieces of a call together are one object
};

/// What one piece of text released, in the order of the members.
struct CompletionDelta {
  std::string reasoning;
  std::string content;
  std::vector<ToolCallDelta> calls;
};

/// One answer's state; owned by the thread that serves it. What may still become a mark of the format is held back.
/// The parts do not depend on how the text is cut into pieces.
class CompletionParser {
 public:
  virtual ~CompletionParser() = default;

  /// Whole characters, without the token that ends the answer. Appends to `out`.
  virtual void push(std::string_view text, CompletionDelta& out) = 0;

  /// The end: releases what is held. An error says where the answer leaves the model's format, or that it ends too
  /// early; what was released stays.
  virtual Status finish(CompletionDelta& out) = 0;

  virtual bool is_reasoning() const = 0;
  virtual std::int32_t num_calls() const = 0;

  /// In the same state.
  virtual std::unique_ptr<CompletionParser> clone() const = 0;
};

}  // namespace thalweg::text
