// What `inspect` tells about DeepSeek-V4.1: roles of layers, bytes per part, memory of the cache, shares of ranks.
#pragma once

#include "models/deepseek_v41/config.h"
#include "models/deepseek_v41/footprint.h"

namespace thalweg::apps {

void print_deepseek_v41(const models::deepseek_v41::Config& config, const models::deepseek_v41::Footprint& footprint);

}  // namespace thalweg::apps
