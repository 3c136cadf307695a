#include "planner/evaluate/open_chunks.h"

#include <algorithm>

namespace tutti::planner {
namespace {

// Stages that begin at one block, by where they end. Chunks take as many whole blocks as they can. While the backward
// uses one, the weights of the one before are gathered and the gradients of the one after are reduced.
class Opening {
  public:
    explicit Opening(const ShardedChunks& chunks) : chunks_(chunks) {}

    std::vector<double> from(int first) {
        std::vector<double> open;
        const auto most = static_cast<double>(chunks_.most);
        double shared = 0; // bytes of tied tensors that both ends of the stage use: whole all the time
        for (int block = first; block < static_cast<int>(chunks_.blocks.size()); ++block) {
            for (const TiedTensor& tie : chunks_.ties) {
                if (std::ranges::find(tie.blocks, block) == tie.blocks.end()) continue;
                const auto uses = std::ranges::count_if(tie.blocks, [&](int b) { return b >= first && b <= block; });
                const auto elements = static_cast<double>(tie.elements);
                if (uses == 1) begin_chunk(elements);
                if (uses == 2) shared += elements * (chunks_.weight + chunks_.gradient);
                full_ = true; // nothing joins it
            }
            const double elements = chunks_.blocks[static_cast<std::size_t>(block)];
            if (full_ || sizes_.back() + elements > most) begin_chunk(0);
            sizes_.back() = std::min(sizes_.back() + elements, most);
            open.push_back(shared + std::max({settled_, around(sizes_.size() - 2), around(sizes_.size() - 1)}));
        }
        return open;
    }

  private:
    void begin_chunk(double elements) {
        if (sizes_.size() >= 2) settled_ = std::max(settled_, around(sizes_.size() - 2));
        sizes_.push_back(elements);
        full_ = false;
    }
    double size(std::size_t chunk) const { return chunk < sizes_.size() ? sizes_[chunk] : 0; }
    double around(std::size_t chunk) const {
        return chunks_.weight * (size(chunk) + size(chunk - 1)) + chunks_.gradient * (size(chunk) + size(chunk + 1));
    }

    const ShardedChunks& chunks_;
    std::vector<double> sizes_;
    bool full_ = true;
    double settled_ = 0; // of chunks whose neighbours are full
};

} // namespace

std::vector<std::vector<double>> open_bytes(const ShardedChunks& chunks) {
    std::vector<std::vector<double>> open;
    for (int first = 0; first < static_cast<int>(chunks.blocks.size()); ++first)
        open.push_back(Opening(chunks).from(first));
    return open;
}

} // namespace tutti::planner
