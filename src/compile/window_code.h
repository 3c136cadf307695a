// Instructions around the windows of chunks that are sharded over ranks: weights are gathered before their first
// reader, gradients are reduced behind their last contribution.
#pragma once

#include "compile/operands.h"
#include "compile/segment_writer.h"
#include "plan/plan_settings.h"

#include <map>
#include <optional>

namespace tutti::compile {

class WindowCode {
  public:
    WindowCode(const Ownership& ownership, const Placement& placement, const Precision& precision,
               SegmentWriter& writer)
        : ownership_(ownership), placement_(placement), precision_(precision), writer_(writer) {}

    void open();  // those that open with the node at hand: before it
    void close(); // behind it
    // The instruction that gathers a chunk of weights, for the first who asks in this part.
    std::optional<std::int32_t> take_gather(std::int32_t chunk);

  private:
    using PartChunk = std::pair<Part, std::int32_t>;
    const std::vector<Window>& here(const Windows& windows) const {
        return windows[static_cast<std::size_t>(writer_.part())];
    }
    std::int64_t elements_of(const Window& window) const {
        return ownership_.layout.chunks[static_cast<std::size_t>(window.chunk)].elements;
    }
    void gather(const Window& window);
    void reduce(const Window& window);
    void add_share(const Window& window);
    Argument share_of(const Window& window, Access access) const;

    const Ownership& ownership_;
    const Placement& placement_;
    const Precision& precision_;
    SegmentWriter& writer_;
    std::map<PartChunk, std::int32_t> gathered_; // that nobody has waited for: instructions
    std::map<PartChunk, std::int32_t> reducing_;
};

} // namespace tutti::compile
