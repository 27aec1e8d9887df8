// The ranges of all numeric request fields in JSON, for every route: what becomes part of a GenerateRequest has its
// rule in base/request_rules.cc, what only HTTP knows has it here.
#pragma once

#include <span>
#include <string_view>

#include "base/request_rules.h"

namespace thalweg::server {

/// Of fields that only HTTP knows.
std::span<const NumberRule> http_number_rules();

/// The field is in one of the two tables.
const NumberRule& number_rule(std::string_view field);

}  // namespace thalweg::server
