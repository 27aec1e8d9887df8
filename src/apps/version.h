#pragma once

#include <string_view>

namespace thalweg::apps {

/// The release and, for builds from a checkout, nothing more.
std::string_view version();

}  // namespace thalweg::apps
