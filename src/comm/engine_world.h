// A World whose groups run on an engine: the same operations, faults and leave over every transport.
#pragma once

#include "comm/engine.h"
#include "comm/group.h"

namespace tutti::comm {

std::unique_ptr<World> make_world(const Engine::OpenTransport& open, Seconds timeout,
                                  Seconds silence = default_silence);

} // namespace tutti::comm
