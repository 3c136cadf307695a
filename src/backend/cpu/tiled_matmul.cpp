// The depth is cut into chunks, so that panels of a chunk stay in the caches. For each chunk all threads pack both
// operands, and then each multiplies its rectangle of the result. An operand that is too large to be packed as a whole
// (the vocabulary's) is packed by the thread that needs it, a few panels at a time.
#include "backend/cpu/tiled_matmul.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

namespace tutti::backend::cpu {
namespace {

using tiles::panel;

constexpr std::int64_t largest_chunk = 1024;                   // of the depth: a panel has 64 KiB
constexpr std::int64_t largest_shared = std::int64_t{8} << 20; // bytes of an operand that is packed as a whole
constexpr std::int64_t block_panels = 4;                       // that stay in the second cache

constexpr std::int64_t rounded_up(std::int64_t count, std::int64_t to) { return (count + to - 1) / to * to; }
constexpr std::int64_t panels_of(std::int64_t count) { return (count + panel - 1) / panel; }

struct Range {
    std::int64_t begin, end;
};
Range part(std::int64_t count, std::int64_t index, std::int64_t parts) {
    return {count * index / parts, count * (index + 1) / parts};
}

// Where threads wait for each other within a matmul. OpenMP's barrier puts them to sleep at once where waiting threads
// are to sleep, and waking them takes as long as the packing; here they soon make way for others instead.
class Meeting {
  public:
    void wait(int threads) {
        const unsigned round = round_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
            arrived_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
            return;
        }
        for (int looks = 0; round_.load(std::memory_order_acquire) == round; ++looks)
            if (looks < 1000)
                __builtin_ia32_pause();
            else
                std::this_thread::yield();
    }

  private:
    std::atomic<int> arrived_ = 0;
    std::atomic<unsigned> round_ = 0;
};

// An operand as its panels see it.
struct Side {
    std::int64_t lines = 0, panels = 0, stride = 0; // lines: rows of the left operand, columns of the right one
    bool along_depth = false, shared = true;
    std::size_t input = 0;

    tiles::Source source(const Launch& launch, std::int64_t index, Range depth) const {
        const std::int64_t first = index * panel;
        const std::int64_t at = along_depth ? first * stride + depth.begin : depth.begin * stride + first;
        return {launch.in<BFloat16>(input) + at, stride, along_depth, std::min(panel, lines - first),
                depth.end - depth.begin};
    }
};

// Of the left operand's lines, of which the depth is the other dimension; the right one is given transposed.
Side side_of(const Matrix& m, std::size_t input) {
    return {.lines = m.rows,
            .panels = panels_of(m.rows),
            .stride = m.by_rows() ? m.row_stride : m.column_stride,
            .along_depth = m.by_rows(),
            .shared = true,
            .input = input};
}

// Workspace: shared panels of the left operand | of the right one | each thread's own panels | sums of earlier chunks
class TiledMatmul : public Kernel {
  public:
    TiledMatmul(const Matmul& matmul, const tiles::Arithmetic& how)
        : p_(matmul), how_(how), left_(side_of(matmul.left, matmul.left_input)),
          right_(side_of(matmul.right.transposed(), matmul.right_input)), depth_(matmul.left.columns),
          chunks_((depth_ + largest_chunk - 1) / largest_chunk),
          chunk_(rounded_up((depth_ + chunks_ - 1) / chunks_, tiles::step)),
          panel_elements_(tiles::packed_elements(chunk_)), threads_(omp_get_max_threads()) {
        chunks_ = (depth_ + chunk_ - 1) / chunk_; // of rounded ones there may be fewer
        Side& larger = left_.panels > right_.panels ? left_ : right_;
        larger.shared = larger.panels * panel_elements_ * element <= largest_shared;
        right_at_ = left_.shared ? left_.panels * panel_elements_ : 0;
        own_at_ = right_at_ + (right_.shared ? right_.panels * panel_elements_ : 0);
        sums_at_ = own_at_ + (larger.shared ? 0 : threads_ * block_panels * panel_elements_);
        choose_grid();
    }

    Bytes workspace() const override {
        const std::int64_t sums = keeps_sums() ? p_.out.rows * p_.out.columns : 0;
        return {sums_at_ * element + sums * static_cast<std::int64_t>(sizeof(float))};
    }

    void run(const Launch& launch) const override {
#pragma omp parallel num_threads(threads_)
        {
            how_.begin();
            for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
                for_own_parts([&](std::int64_t part, std::int64_t) { pack_shared(launch, chunk, part); });
                packed_.wait(omp_get_num_threads());
                for_own_parts([&](std::int64_t part, std::int64_t thread) { multiply(launch, chunk, part, thread); });
                if (chunk + 1 < chunks_) packed_.wait(omp_get_num_threads()); // before the panels are overwritten
            }
            how_.end();
        }
    }

  private:
    static constexpr std::int64_t element = sizeof(BFloat16);

    bool keeps_sums() const { return chunks_ > 1 && p_.out.dtype == DType::bfloat16; }

    // The work is cut for the threads that were asked for, even if there are fewer.
    template <class Body>
    void for_own_parts(const Body& body) const {
        const int thread = omp_get_thread_num();
        for (std::int64_t part = thread; part < threads_; part += omp_get_num_threads()) body(part, thread);
    }

    // Threads as rows and columns over the result: so that the largest rectangle is small, and little is packed twice.
    void choose_grid() {
        std::int64_t least = -1;
        for (std::int64_t rows = 1; rows <= threads_; ++rows) {
            if (threads_ % rows != 0) continue;
            const std::int64_t high = (left_.panels + rows - 1) / rows;
            const std::int64_t wide = (right_.panels + threads_ / rows - 1) / (threads_ / rows);
            // In eighths of the time that a block takes; packing a panel takes about as long.
            const std::int64_t cost = 8 * high * wide + (left_.shared ? 1 : 8) * high + (right_.shared ? 1 : 8) * wide;
            if (least < 0 || cost < least) {
                least = cost;
                grid_rows_ = rows;
            }
        }
    }

    Range depth_of(std::int64_t chunk) const { return {chunk * chunk_, std::min(depth_, (chunk + 1) * chunk_)}; }
    BFloat16* packed(const Launch& launch, std::int64_t at, std::int64_t index) const {
        return reinterpret_cast<BFloat16*>(launch.workspace) + at + index * panel_elements_;
    }

    void pack_shared(const Launch& launch, std::int64_t chunk, std::int64_t index) const {
        auto pack = [&](const Side& side, std::int64_t at, void (*pack_panel)(const tiles::Source&, BFloat16*)) {
            if (!side.shared) return;
            const Range own = part(side.panels, index, threads_);
            for (std::int64_t i = own.begin; i < own.end; ++i)
                pack_panel(side.source(launch, i, depth_of(chunk)), packed(launch, at, i));
        };
        pack(left_, 0, how_.pack_left);
        pack(right_, right_at_, how_.pack_right);
    }

    // A few panels of one operand by all of the other: those of the right one, unless the left one is packed here.
    void multiply(const Launch& launch, std::int64_t chunk, std::int64_t index, std::int64_t thread) const {
        const std::int64_t grid_columns = threads_ / grid_rows_;
        const Range rows = part(left_.panels, index / grid_columns, grid_rows_);
        const Range columns = part(right_.panels, index % grid_columns, grid_columns);
        const Range depth = depth_of(chunk);
        const std::int64_t own = own_at_ + thread * block_panels * panel_elements_;
        const Range& outer = left_.shared ? columns : rows;
        for (std::int64_t first = outer.begin; first < outer.end; first += block_panels) {
            const Range some = {first, std::min(first + block_panels, outer.end)};
            for (std::int64_t i = some.begin; i < some.end; ++i) {
                if (!left_.shared) how_.pack_left(left_.source(launch, i, depth), packed(launch, own, i - first));
                if (!right_.shared) how_.pack_right(right_.source(launch, i, depth), packed(launch, own, i - first));
            }
            const Range &high = left_.shared ? rows : some, &wide = left_.shared ? some : columns;
            for (std::int64_t i = high.begin; i < high.end; ++i)
                for (std::int64_t j = wide.begin; j < wide.end; ++j)
                    multiply_block(launch, chunk, i, j,
                                   left_.shared ? packed(launch, 0, i) : packed(launch, own, i - first),
                                   right_.shared ? packed(launch, right_at_, j) : packed(launch, own, j - first));
        }
    }

    void multiply_block(const Launch& launch, std::int64_t chunk, std::int64_t i, std::int64_t j, const BFloat16* left,
                        const BFloat16* right) const {
        alignas(64) std::array<float, panel * panel> block;
        const Range depth = depth_of(chunk);
        how_.multiply(left, right, tiles::steps_of(depth.end - depth.begin), block.data());
        how_.finish(block.data(), target(launch, chunk, i * panel, j * panel));
    }

    // Sums that go to a float32 result, or to one of a single chunk, are added there. Else they are kept until the
    // last.
    tiles::Target target(const Launch& launch, std::int64_t chunk, std::int64_t row, std::int64_t column) const {
        const bool is_first = chunk == 0, is_last = chunk + 1 == chunks_, kept = keeps_sums();
        auto* const sums =
            reinterpret_cast<float*>(launch.workspace + sums_at_ * element) + row * p_.out.columns + column;
        const std::int64_t at = row * p_.out.row_stride + column;
        const bool narrow = p_.out.dtype == DType::bfloat16;
        tiles::Target to{.rows = std::min(panel, p_.out.rows - row),
                         .columns = std::min(panel, p_.out.columns - column),
                         .out = sums,
                         .out_stride = p_.out.columns,
                         .narrow = false,
                         .accumulate = !is_first,
                         .partial = nullptr,
                         .partial_stride = p_.out.columns,
                         .bias = nullptr};
        if (!kept || is_last) {
            to.out = narrow ? static_cast<void*>(launch.out<BFloat16>(0) + at) : launch.out<float>(0) + at;
            to.out_stride = p_.out.row_stride;
            to.narrow = narrow;
            to.accumulate = p_.accumulate || (!kept && !is_first);
            if (kept) to.partial = sums;
        }
        if (p_.has_bias && (kept ? is_last : is_first)) to.bias = launch.in<BFloat16>(2) + column;
        return to;
    }

    Matmul p_;
    const tiles::Arithmetic& how_;
    Side left_, right_;
    std::int64_t depth_, chunks_, chunk_, panel_elements_; // of a chunk's panel
    std::int64_t threads_, grid_rows_ = 1;
    std::int64_t right_at_ = 0, own_at_ = 0, sums_at_ = 0; // elements
    mutable Meeting packed_;                               // kernels of a device run one at a time
};

bool has_unit_stride(const Matrix& m) { return m.row_stride == 1 || m.column_stride == 1; }

} // namespace

bool fits_tiles(const Matmul& p) {
    return p.left.dtype == DType::bfloat16 && p.right.dtype == DType::bfloat16 && p.batch.count == 1 &&
           p.outer.empty() && p.out.by_rows() && has_unit_stride(p.left) && has_unit_stride(p.right) &&
           p.out.rows >= 16 && p.out.columns >= 16 && p.left.columns >= 16;
}

std::unique_ptr<Kernel> make_tiled(const Matmul& matmul, const tiles::Arithmetic& arithmetic) {
    return std::make_unique<TiledMatmul>(matmul, arithmetic);
}

} // namespace tutti::backend::cpu
