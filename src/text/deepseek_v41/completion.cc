#include "text/deepseek_v41/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "text/deepseek_v41/tokens.h"
#include "text/python_json.h"
#include "text/utf8.h"

namespace thalweg::text::deepseek_v41 {
namespace {

constexpr std::string_view kMarkup = "<｜DSML｜";
constexpr std::string_view kOpenCalls = "<｜DSML｜ calls";
constexpr std::string_view kCloseCalls = "</｜DSML｜ calls>";
constexpr std::string_view kOpenCall = "<｜DSML｜ invoke name=\"";
constexpr std::string_view kCloseCall = "</｜DSML｜ invoke>";
constexpr std::string_view kCloseEmptyCall = "\n</｜DSML｜ invoke>";  // no parameters leave an empty line
constexpr std::string_view kEndOfCallName = "\">\n";
constexpr std::string_view kOpenParameter = "<｜DSML｜ parameter name=\"";
constexpr std::string_view kString = "\" string=\"true\">";
constexpr std::string_view kNotString = "\" string=\"false\">";
constexpr std::string_view kCloseParameter = "</｜DSML｜ parameter";
constexpr std::string_view kEndOfTag = ">\n";

// A name longer than this is no name; so much text is held back at most.
constexpr std::size_t kMaxNameBytes = 4096;

struct Found {
  std::size_t at = 0;  // where the mark begins; where one may begin, if there is none
  const std::string_view* mark = nullptr;
};

/// The first of `marks` in `text` from `from` on.
Found find_mark(std::string_view text, std::size_t from, std::span<const std::string_view> marks) {
  Found found{.at = text.size()};
  for (const std::string_view& mark : marks) {
    const std::size_t at = text.find(mark, from);
    if (at < found.at) found = {at, &mark};
  }
  if (found.mark != nullptr) return found;
  std::size_t longest = 0;
  for (const std::string_view mark : marks) longest = std::max(longest, mark.size());
  for (std::size_t at = text.size() - std::min(text.size(), longest); at < text.size(); ++at) {
    const std::string_view rest = text.substr(at);
    if (std::ranges::any_of(marks, [&](std::string_view mark) { return mark.starts_with(rest); })) return {.at = at};
  }
  return found;
}

}  // namespace

Completion::Completion(const CompletionStart& start)
    : state_(start.in_reasoning ? State::kReasoning : State::kContent),
      parses_calls_(start.parses_calls),
      is_continued_(start.is_continued) {}

void Completion::push(std::string_view text, CompletionDelta& out) {
  if (state_ == State::kBroken) return;
  buffer_.append(text);
  while (!buffer_.empty() && step(out)) {
  }
}

/// One move; false when it needs more text.
bool Completion::step(CompletionDelta& out) {
  switch (state_) {
    case State::kReasoning:
      return read_reasoning(out);
    case State::kContent:
      return read_content(out);
    case State::kCallsOpened:
      return expect(kEndOfTag, State::kBetweenCalls, "behind the mark that opens calls");
    case State::kBetweenCalls:
      return read_between_calls();
    case State::kName:
      return read_call_name(out);
    case State::kParameters:
      return read_parameters(out);
    case State::kParameterName:
      return read_parameter_name(out);
    case State::kValue:
      return read_value(out);
    case State::kAfterParameter:
      return expect(kEndOfTag, State::kParameters, "behind a parameter");
    case State::kAfterCall:
      return expect("\n", State::kBetweenCalls, "behind a call");
    case State::kAfterCalls:
      return break_off("there is text behind the calls");
    case State::kBroken:
      break;
  }
  buffer_.clear();
  return false;
}

bool Completion::read_reasoning(CompletionDelta& out) {
  constexpr std::array kMarks = {kEndThink, kOpenCalls};
  const Found found = find_mark(buffer_, 0, std::span(kMarks).first(parses_calls_ ? 2 : 1));
  release_text(std::string_view(buffer_).substr(0, found.at), out.reasoning);
  take(found.at + (found.mark == nullptr ? 0 : found.mark->size()));
  if (found.mark == nullptr) return false;
  begin_section(*found.mark == kEndThink ? State::kContent : State::kCallsOpened);
  return true;
}

bool Completion::read_content(CompletionDelta& out) {
  constexpr std::array kMarks = {kEndThink, kOpenCalls};
  const Found found = find_mark(buffer_, 0, std::span(kMarks).first(parses_calls_ ? 2 : 1));
  release_text(std::string_view(buffer_).substr(0, found.at), out.content);
  take(found.at + (found.mark == nullptr ? 0 : found.mark->size()));
  if (found.mark == nullptr) return false;
  // Nothing is left to end: a second </think> is dropped.
  if (*found.mark == kOpenCalls) begin_section(State::kCallsOpened);
  return true;
}

bool Completion::read_between_calls() {
  if (buffer_.starts_with(kCloseCalls)) {
    take(kCloseCalls.size());
    state_ = State::kAfterCalls;
    return true;
  }
  if (kCloseCalls.starts_with(buffer_)) return false;
  return expect(kOpenCall, State::kName, "where a call or the end of the calls is due");
}

bool Completion::read_call_name(CompletionDelta& out) {
  const std::size_t end = buffer_.find(kEndOfCallName, num_searched_);
  if (end == std::string::npos) {
    num_searched_ = buffer_.size() - std::min(buffer_.size(), kEndOfCallName.size());
    return buffer_.size() > kMaxNameBytes && break_off("the name of a call has no end");
  }
  if (end == 0) return break_off("a call has no name");
  out.calls.push_back({.index = num_calls_++, .name = buffer_.substr(0, end), .arguments = {}});
  names_.clear();
  take(end + kEndOfCallName.size());
  state_ = State::kParameters;
  return true;
}

bool Completion::read_parameters(CompletionDelta& out) {
  for (const std::string_view close : {kCloseCall, kCloseEmptyCall}) {
    if (close == kCloseEmptyCall && !names_.empty()) continue;
    if (buffer_.starts_with(close)) {
      arguments(out).append(names_.empty() ? "{}" : "}");
      take(close.size());
      state_ = State::kAfterCall;
      return true;
    }
    if (close.starts_with(buffer_)) return false;
  }
  return expect(kOpenParameter, State::kParameterName, "where a parameter or the end of the call is due");
}

bool Completion::read_parameter_name(CompletionDelta& out) {
  constexpr std::array kMarks = {kString, kNotString, kCloseParameter};
  const Found found = find_mark(buffer_, num_searched_, kMarks);
  if (found.mark == nullptr) {
    num_searched_ = found.at;
    return buffer_.size() > kMaxNameBytes && break_off("the name of a parameter has no end");
  }
  if (*found.mark == kCloseParameter) return break_off("a parameter does not say whether it is a string");
  std::string name = buffer_.substr(0, found.at);
  if (names_.contains(name)) return break_off(fmt::format("the parameter \"{}\" is given twice", name));
  is_string_ = *found.mark == kString;
  std::string& text = arguments(out);
  text.append(names_.empty() ? "{" : ", ");
  append_json_string(name, text);
  text.append(is_string_ ? ": \"" : ": ");
  names_.insert(std::move(name));
  take(found.at + found.mark->size());
  state_ = State::kValue;
  return true;
}

bool Completion::read_value(CompletionDelta& out) {
  constexpr std::array kMarks = {kCloseParameter};
  const Found found = find_mark(buffer_, 0, kMarks);
  release_value(std::string_view(buffer_).substr(0, found.at), out);
  take(found.at + (found.mark == nullptr ? 0 : found.mark->size()));
  if (found.mark == nullptr) return false;
  if (is_string_) arguments(out).push_back('"');
  state_ = State::kAfterParameter;
  return true;
}

Status Completion::finish(CompletionDelta& out) {
  std::string& text = state_ == State::kReasoning ? out.reasoning : out.content;
  if (state_ == State::kReasoning || state_ == State::kContent) {
    // Half a mark is text, unless it cannot be anything but markup.
    if (parses_calls_ && buffer_.starts_with(kMarkup)) {
      break_off("the answer ends within a mark");
    } else {
      release_text(buffer_, text);
      text.append(has_text_ || is_continued_ ? num_line_ends_ : 0, '\n');
    }
  } else if (state_ == State::kValue) {
    release_value(buffer_, out);
  }
  buffer_.clear();
  if (state_ == State::kReasoning) break_off("the reasoning has no end");
  const bool is_complete = state_ == State::kContent || state_ == State::kAfterCalls || state_ == State::kBroken;
  if (!is_complete) break_off("the answer ends within its calls");
  return error_.empty() ? Status() : fail(ErrorCode::kInvalidArgument, error_);
}

/// Line ends wait for what follows them; at the beginning of a section they are dropped.
void Completion::release_text(std::string_view text, std::string& out) {
  const std::size_t end = text.find_last_not_of('\n') + 1;
  if (end == 0) {
    num_line_ends_ += text.size();
    return;
  }
  const bool keeps_line_ends = has_text_ || is_continued_;
  if (keeps_line_ends) out.append(num_line_ends_, '\n');
  out.append(text.substr(0, end), keeps_line_ends ? 0 : text.find_first_not_of('\n'));
  num_line_ends_ = text.size() - end;
  has_text_ = true;
}

void Completion::release_value(std::string_view text, CompletionDelta& out) {
  if (text.empty()) return;
  if (is_string_) {
    append_json_letters(text, arguments(out));
  } else {
    arguments(out).append(text);
  }
}

void Completion::begin_section(State state) {
  state_ = state;
  has_text_ = false;
  is_continued_ = false;
  num_line_ends_ = 0;
}

/// Takes `mark` and goes to `next`; false while more text may complete the mark.
bool Completion::expect(std::string_view mark, State next, std::string_view where) {
  if (buffer_.starts_with(mark)) {
    take(mark.size());
    state_ = next;
    return true;
  }
  if (mark.starts_with(buffer_)) return false;
  std::string shown;
  append_valid_utf8(std::string_view(buffer_).substr(0, 32), shown);
  return break_off(fmt::format("\"{}\" stands {}", shown, where));
}

bool Completion::break_off(std::string message) {
  if (error_.empty()) error_ = std::move(message);
  state_ = State::kBroken;
  buffer_.clear();
  return true;
}

void Completion::take(std::size_t size) {
  buffer_.erase(0, size);
  num_searched_ = 0;
}

/// Where the open call's arguments go on.
std::string& Completion::arguments(CompletionDelta& out) const {
  if (out.calls.empty()) out.calls.push_back({.index = num_calls_ - 1, .name = {}, .arguments = {}});
  return out.calls.back().arguments;
}

}  // namespace thalweg::text::deepseek_v41
