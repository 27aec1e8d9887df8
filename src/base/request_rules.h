// The ranges of a request's numbers. Every door asks here: HTTP, command line, batch files, library.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace thalweg {

struct NumberRule {
  std::string_view field;  // as HTTP calls it; the command line writes '-' for '_'
  double min = 0;
  double max = 0;
  bool min_is_excluded = false;
  bool is_integer = false;
};

/// Of all fields that become part of a GenerateRequest.
std::span<const NumberRule> request_number_rules();

/// The field is in the table.
const NumberRule& request_number_rule(std::string_view field);

/// A NaN is in no range.
bool in_range(const NumberRule& rule, double value);

/// "must be a number in (0, 1]"
std::string describe(const NumberRule& rule);

}  // namespace thalweg
