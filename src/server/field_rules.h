// The ranges of all numeric request fields in JSON, for every route, in one table. What becomes part of a
// GenerateRequest is checked again by the engine (validate_request); a test holds both tables together.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace thalweg::server {

struct NumberRule {
  std::string_view field;
  double min = 0;
  double max = 0;
  bool min_is_excluded = false;
  bool is_integer = false;
};

std::span<const NumberRule> number_rules();

/// The field is in the table.
const NumberRule& number_rule(std::string_view field);

bool in_range(const NumberRule& rule, double value);

/// "must be a number in (0, 1]"
std::string describe(const NumberRule& rule);

}  // namespace thalweg::server
