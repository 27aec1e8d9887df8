// DeepSeek-V4.1-Flash as released, for questions that need no file (DeepSeek-V4.1 specification, sections 1.1 to 1.3).
#pragma once

#include "models/deepseek_v41/config.h"
#include "models/deepseek_v41/inventory.h"

namespace thalweg::models::deepseek_v41 {

Config released_config();
VisionTower released_vision_tower();

}  // namespace thalweg::models::deepseek_v41
