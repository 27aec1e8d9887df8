// JSON as Python's json.dumps(value, ensure_ascii=False) writes it: what models were shown in training.
#pragma once

#include <boost/json/fwd.hpp>
#include <string>
#include <string_view>

namespace thalweg::text {

/// Appends `value`; nested no deeper than its parser allowed.
void append_python_json(const boost::json::value& value, std::string& out);

/// Appends the letters of a JSON string without the quotes around it; any bytes, in pieces of any length.
void append_json_letters(std::string_view text, std::string& out);

/// With the quotes.
void append_json_string(std::string_view text, std::string& out);

}  // namespace thalweg::text
