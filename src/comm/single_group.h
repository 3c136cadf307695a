// A group of one rank: every operation is done when it starts.
#pragma once

#include "comm/group.h"

namespace tutti::comm {

std::unique_ptr<Group> make_single_group(std::string name);

} // namespace tutti::comm
