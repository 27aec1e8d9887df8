#include "apps/version.h"

namespace thalweg::apps {

std::string_view version() { return THALWEG_VERSION; }

}  // namespace thalweg::apps
