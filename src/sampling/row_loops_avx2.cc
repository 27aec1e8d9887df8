#include "sampling/row_loops_body.h"

namespace thalweg::sampling {

const RowLoops& avx2_row_loops() { return kRowLoops; }

}  // namespace thalweg::sampling
