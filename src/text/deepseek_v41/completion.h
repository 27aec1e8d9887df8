// DeepSeek-V4.1's answers: the grammar of the specification's section 1.5.4 as a state machine.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "text/completion_parser.h"

namespace thalweg::text::deepseek_v41 {

struct CompletionStart {
  bool in_reasoning = true;   // the prompt ends inside <think>
  bool is_continued = false;  // the answer goes on with a text of the prompt: its first line ends are its own
  bool parses_calls = true;   // false: marks of calls are content
};

/// Line ends around reasoning, at the beginning of content and before calls belong to the format, as in DeepSeek's
/// `deepseek-recipe` package. Calls are strict: from the first letter that the grammar does not allow, nothing more is
/// released and finish() tells why.
class Completion final : public CompletionParser {
 public:
  explicit Completion(const CompletionStart& start);

  void push(std::string_view text, CompletionDelta& out) override;
  Status finish(CompletionDelta& out) override;
  bool is_reasoning() const override { return state_ == State::kReasoning; }
  std::int32_t num_calls() const override { return num_calls_; }
  std::unique_ptr<CompletionParser> clone() const override { return std::make_unique<Completion>(*this); }

 private:
  enum class State {
    kReasoning,
    kContent,
    kCallsOpened,     // behind "<T calls"
    kBetweenCalls,    // before "<T invoke" or "</T calls>"
    kName,            // behind `<T invoke name="`
    kParameters,      // before "<T parameter" or "</T invoke>"
    kParameterName,   // behind `<T parameter name="`
    kValue,           // in a parameter
    kAfterParameter,  // behind "</T parameter"
    kAfterCall,       // behind "</T invoke>"
    kAfterCalls,
    kBroken,
  };

  bool step(CompletionDelta& out);
  bool read_reasoning(CompletionDelta& out);
  bool read_content(CompletionDelta& out);
  bool read_call_name(CompletionDelta& out);
  bool read_between_calls();
  bool read_parameters(CompletionDelta& out);
  bool read_parameter_name(CompletionDelta& out);
  bool read_value(CompletionDelta& out);

  void release_text(std::string_view text, std::string& out);
  void release_value(std::string_view text, CompletionDelta& out);
  void begin_section(State state);
  bool expect(std::string_view mark, State next, std::string_view where);
  bool break_off(std::string message);
  void take(std::size_t size);
  std::string& arguments(CompletionDelta& out) const;

  State state_;
  const bool parses_calls_;
  bool is_continued_;
  std::string buffer_;             // not yet understood
  std::size_t num_searched_ = 0;   // bytes of the buffer in which the mark that ends the state does not begin
  bool has_text_ = false;          // the section has released something
  std::size_t num_line_ends_ = 0;  // behind what was released, held back
  std::int32_t num_calls_ = 0;
  bool is_string_ = false;       // the parameter's value
  std::set<std::string> names_;  // parameters of the call
  std::string error_;
};

}  // namespace thalweg::text::deepseek_v41
