// Kernels without inputs: constants, positions, rotary tables, step scalars; and dropout.
#include "backend/cpu/kernels.h"
#include "backend/cpu/walk.h"
#include "backend/random_stream.h"
#include "backend/storage.h"

#include <algorithm>
#include <cmath>

namespace tutti::backend::cpu {
namespace {

void fill(const KernelRequest& request, const Launch& l) {
    const std::int64_t count = request.outputs[0].elements();
    const double value = request.attributes.real("value");
    with_storage(request.outputs[0].type.dtype, [&]<class T>(T) {
        constexpr std::int64_t piece = 1 << 14;
        parallel_for((count + piece - 1) / piece, piece, [&](std::int64_t p) {
            std::fill_n(l.out<T>(0) + p * piece, std::min(piece, count - p * piece), from_double<T>(value));
        });
    });
}

void iota(const KernelRequest& request, const Launch& l) {
    const std::int64_t start = request.attributes.integer("start", 0);
    for (std::int64_t i = 0; i < request.outputs[0].elements(); ++i) l.out<std::int64_t>(0)[i] = start + i;
}

// The angle is rounded to float32, as the models' authors compute it.
void rotary_table(const KernelRequest& request, const Launch& l) {
    const std::vector<double>& frequencies = request.attributes.reals("frequencies");
    const auto width = static_cast<std::int64_t>(frequencies.size());
    const std::int64_t start = request.attributes.integer("start", 0);
    const double scale = request.attributes.real("scale", 1);
    with_storage(request.outputs[0].type.dtype, [&]<class T>(T) {
        parallel_for(request.outputs[0].type.shape[0], 50 * width, [&](std::int64_t t) {
            for (std::int64_t i = 0; i < width; ++i) {
                const float angle =
                    static_cast<float>(start + t) * static_cast<float>(frequencies[static_cast<std::size_t>(i)]);
                l.out<T>(0)[t * width + i] = from_double<T>(scale * std::cos(static_cast<double>(angle)));
                l.out<T>(1)[t * width + i] = from_double<T>(scale * std::sin(static_cast<double>(angle)));
            }
        });
    });
}

// loss_seed, the only field there is
void step_scalar(const KernelRequest& request, const Launch& l) {
    with_storage(request.outputs[0].type.dtype,
                 [&]<class T>(T) { *l.out<T>(0) = from_double<T>(l.scalars->loss_scale * l.scalars->inverse_tokens); });
}

// An element is numbered within the whole sample, of which x may hold a part; a run of elements is numbered without
// gaps: a whole sample, or else a row of the part.
template <class T>
class Dropout : public Kernel {
  public:
    explicit Dropout(const KernelRequest& request)
        : walk_(request.outputs[0], request.inputs), shape_(request.inputs[0].type.shape),
          first_sample_(request.attributes.integer("first_sample", 0)), source_(hash_of(request.source)) {
        TUTTI_CHECK(request.outputs[0].dense(), "dropout to strides {}", to_string(request.outputs[0].strides));
        const double p = request.attributes.real("p");
        how_.threshold = static_cast<std::uint32_t>(std::ceil(p * 0x1p24));
        how_.scale = static_cast<float>(1 / (1 - p));
        for (int d = 1; d < shape_.rank(); ++d) {
            const auto at = static_cast<std::size_t>(d - 1);
            whole_.push_back(request.attributes.has("whole") ? request.attributes.integers("whole")[at] : shape_[d]);
            offsets_.push_back(request.attributes.has("offsets") ? request.attributes.integers("offsets")[at] : 0);
        }
        sample_ = shape_.elements() / shape_[0];
        const bool complete = whole_.elements() == sample_;
        run_ = complete ? sample_ : shape_.back();
    }

    void run(const Launch& l) const override {
        DropoutRow how = how_;
        how.key = key_of(*l.scalars);
        parallel_for(walk_.pieces(), 8 * Walk::piece, [&, how](std::int64_t index) {
            alignas(64) Walk::Buffer buffer;
            const T* x = reinterpret_cast<const T*>(walk_.read(0, l.inputs[0], index, buffer));
            T* y = l.out<T>(0) + walk_.begin(index);
            DropoutRow row = how;
            for (std::int64_t done = 0, count = walk_.count(index); done < count;) {
                const std::int64_t i = walk_.begin(index) + done, here = std::min(count - done, run_ - i % run_);
                const std::int64_t sample = l.scalars->first_sample + l.samples_before + first_sample_ + i / sample_;
                row.stream = mix_bits(source_, static_cast<std::uint64_t>(sample)); // stream_of
                simd().rows<T>().dropout(x + done, y + done, here, element(i % sample_), row);
                done += here;
            }
        });
    }

  private:
    // The number in the whole sample of element i of the part.
    std::uint64_t element(std::int64_t i) const {
        if (run_ == sample_ && whole_.elements() == sample_) return static_cast<std::uint64_t>(i);
        std::int64_t number = 0, stride = 1;
        for (int d = whole_.rank() - 1; d >= 0; --d) {
            number += (i % shape_[d + 1] + offsets_[d]) * stride;
            i /= shape_[d + 1];
            stride *= whole_[d];
        }
        return static_cast<std::uint64_t>(number);
    }

    Walk walk_;
    Shape shape_, whole_, offsets_;
    std::int64_t first_sample_, sample_ = 0, run_ = 0;
    std::uint64_t source_;
    DropoutRow how_;
};

} // namespace

void add_source_kernels(KernelTable& table) {
    table.add("fill", KernelFunction(fill));
    table.add("iota", KernelFunction(iota));
    table.add("rotary_table", KernelFunction(rotary_table));
    table.add("step_scalar", KernelFunction(step_scalar));
}

void add_random_kernels(KernelTable& table) { add_floating<Dropout>(table, "dropout"); }

} // namespace tutti::backend::cpu
