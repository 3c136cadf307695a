// Counts what this program allocates with new.
#pragma once

namespace tutti {

int allocation_count();

} // namespace tutti
