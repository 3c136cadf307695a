// Model data moved to and from files in pieces of a few megabytes, so that no tensor is ever held twice.
#pragma once

#include "runtime/model_data.h"

#include <cstdint>
#include <functional>
#include <span>

namespace tutti {

// Calls `use` with consecutive pieces of a stored tensor: the number of the first element, and the bytes.
void for_each_piece(const ModelData& data, Region region, std::int32_t stored,
                    const std::function<void(std::int64_t first, std::span<const std::byte> bytes)>& use);
// Calls `make` for consecutive pieces, which it fills.
void fill_pieces(const ModelData& data, Region region, std::int32_t stored,
                 const std::function<void(std::int64_t first, std::span<std::byte> bytes)>& make);
// Weights become their master copy, rounded.
void round_master(const ModelData& data, std::size_t stored_count);

} // namespace tutti
