#include "train/tensor_pieces.h"

#include "formats/tensor_store.h"

#include <algorithm>
#include <vector>

namespace tutti {
namespace {

constexpr std::int64_t piece_elements = std::int64_t{1} << 20;

template <class Visit>
void visit_pieces(std::int64_t elements, Visit visit) {
    for (std::int64_t first = 0; first < elements; first += piece_elements)
        visit(first, std::min(piece_elements, elements - first));
}

} // namespace

void for_each_piece(const ModelData& data, Region region, std::int32_t stored,
                    const std::function<void(std::int64_t, std::span<const std::byte>)>& use) {
    std::vector<std::byte> piece;
    visit_pieces(data.elements(stored), [&](std::int64_t first, std::int64_t count) {
        piece.resize(static_cast<std::size_t>(count * size_of(data.dtype(region))));
        data.read(region, stored, first, piece);
        use(first, piece);
    });
}

void fill_pieces(const ModelData& data, Region region, std::int32_t stored,
                 const std::function<void(std::int64_t, std::span<std::byte>)>& make) {
    std::vector<std::byte> piece;
    visit_pieces(data.elements(stored), [&](std::int64_t first, std::int64_t count) {
        piece.resize(static_cast<std::size_t>(count * size_of(data.dtype(region))));
        make(first, piece);
        data.write(region, stored, first, piece);
    });
}

void round_master(const ModelData& data, std::size_t stored_count) {
    std::vector<std::byte> rounded;
    for (std::size_t i = 0; i < stored_count; ++i) {
        const auto stored = static_cast<std::int32_t>(i);
        for_each_piece(data, Region::master, stored, [&](std::int64_t first, std::span<const std::byte> master) {
            const auto count = static_cast<std::int64_t>(master.size()) / size_of(data.dtype(Region::master));
            rounded.resize(static_cast<std::size_t>(count * size_of(data.dtype(Region::weights))));
            convert_elements(data.dtype(Region::master), master, data.dtype(Region::weights), rounded);
            data.write(Region::weights, stored, first, rounded);
        });
    }
}

} // namespace tutti
