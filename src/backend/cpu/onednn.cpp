#include "backend/cpu/onednn.h"

#include "backend/cpu/tiled_matmul.h"
#include "base/error.h"

#include <cstdlib>
#include <mutex>

namespace tutti::backend::cpu {
namespace {

using dnnl::memory;

memory::desc describe(const Matrix& m, std::int64_t count, std::int64_t stride, bool batched) {
    const auto type = m.dtype == DType::bfloat16 ? memory::data_type::bf16 : memory::data_type::f32;
    if (!batched) return {{m.rows, m.columns}, type, memory::dims{m.row_stride, m.column_stride}};
    return {{count, m.rows, m.columns}, type, memory::dims{stride, m.row_stride, m.column_stride}};
}

std::int64_t size_in_workspace(const memory::desc& desc) {
    return static_cast<std::int64_t>((desc.get_size() + 63) / 64 * 64);
}

// A primitive, its memory objects and its argument list. Kernels of a device run one at a time, so the memory objects
// are just pointed at the operands.
class Call {
  public:
    void prepare(const dnnl::primitive& primitive, const Onednn& onednn,
                 const std::vector<std::pair<int, memory::desc>>& arguments) {
        primitive_ = primitive;
        stream_ = onednn.stream;
        memories_.reserve(arguments.size()); // arguments_ points into it
        for (const auto& [name, desc] : arguments) {
            memories_.emplace_back(desc, onednn.engine, nullptr);
            arguments_.push_back({name, memories_.back().get()});
        }
    }
    void point(std::size_t argument, const std::byte* data) const {
        dnnl_memory_set_data_handle_v2(memories_[argument].get(), const_cast<std::byte*>(data), stream_.get());
    }
    void run() const {
        const dnnl_status_t status = dnnl_primitive_execute(primitive_.get(), stream_.get(),
                                                            static_cast<int>(arguments_.size()), arguments_.data());
        TUTTI_CHECK(status == dnnl_success, "oneDNN status {}", static_cast<int>(status));
    }

  private:
    dnnl::primitive primitive_;
    dnnl::stream stream_;
    std::vector<memory> memories_;
    std::vector<dnnl_exec_arg_t> arguments_;
};

// Workspace: scratchpad | packed right operand | scratchpad of the packing
class MatmulKernel : public Kernel {
  public:
    MatmulKernel(std::shared_ptr<Onednn> onednn, const Matmul& p) : onednn_(std::move(onednn)), matmul_(p) {
        const bool batched = p.batch.count > 1;
        const memory::desc left = describe(p.left, p.batch.count, p.batch.left, batched);
        const memory::desc right = describe(p.right, p.batch.count, p.batch.right, batched);
        const memory::desc out = describe(p.out, p.batch.count, p.batch.out, batched);
        const Matrix bias_row{p.left.dtype, 1, p.out.columns, p.out.columns, 1};
        const memory::desc bias = describe(bias_row, 1, p.out.columns, batched);
        const memory::desc any_right(right.dims(), right.data_type(), memory::format_tag::any);

        dnnl::primitive_attr attributes = without_allocation();
        if (p.accumulate) {
            dnnl::post_ops add;
            add.append_sum(1.0f);
            attributes.set_post_ops(add);
        }
        const memory::desc& asked = p.pack_right ? any_right : right;
        const dnnl::matmul::desc what =
            p.has_bias ? dnnl::matmul::desc(left, asked, bias, out) : dnnl::matmul::desc(left, asked, out);
        const dnnl::matmul::primitive_desc how(what, attributes, onednn_->engine);
        std::vector<std::pair<int, memory::desc>> arguments = {{DNNL_ARG_SRC, left},
                                                               {DNNL_ARG_WEIGHTS, how.weights_desc()},
                                                               {DNNL_ARG_DST, out},
                                                               {DNNL_ARG_SCRATCHPAD, how.scratchpad_desc()}};
        if (p.has_bias) arguments.emplace_back(DNNL_ARG_BIAS, bias);
        multiply_.prepare(dnnl::matmul(how), *onednn_, arguments);
        packed_at_ = workspace_ = size_in_workspace(how.scratchpad_desc());
        if (p.pack_right) prepare_packing(right, how.weights_desc());
    }

    Bytes workspace() const override { return {workspace_}; }

    void run(const Launch& launch) const override {
        if (matmul_.outer.empty()) return run_at(launch, {});
        for (const Batch& at : matmul_.outer) run_at(launch, at);
    }

  private:
    static dnnl::primitive_attr without_allocation() {
        dnnl::primitive_attr attributes;
        attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
        return attributes;
    }

    void prepare_packing(const memory::desc& from, const memory::desc& to) {
        const dnnl::reorder::primitive_desc how(onednn_->engine, from, onednn_->engine, to, without_allocation());
        pack_.prepare(dnnl::reorder(how), *onednn_,
                      {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}, {DNNL_ARG_SCRATCHPAD, how.scratchpad_desc()}});
        packing_scratchpad_at_ = packed_at_ + size_in_workspace(to);
        workspace_ = packing_scratchpad_at_ + size_in_workspace(how.scratchpad_desc());
    }

    void run_at(const Launch& launch, const Batch& at) const {
        const Matmul& p = matmul_;
        const std::byte* right = launch.inputs[p.right_input] + at.right * size_of(p.right.dtype);
        if (p.pack_right) {
            pack_.point(0, right);
            pack_.point(1, launch.workspace + packed_at_);
            pack_.point(2, launch.workspace + packing_scratchpad_at_);
            pack_.run();
            right = launch.workspace + packed_at_;
        }
        multiply_.point(0, launch.inputs[p.left_input] + at.left * size_of(p.left.dtype));
        multiply_.point(1, right);
        multiply_.point(2, launch.outputs[0] + at.out * size_of(p.out.dtype));
        multiply_.point(3, launch.workspace);
        if (p.has_bias) multiply_.point(4, launch.inputs[2]);
        multiply_.run();
    }

    std::shared_ptr<Onednn> onednn_;
    Matmul matmul_;
    Call multiply_, pack_;
    std::int64_t packed_at_ = 0, packing_scratchpad_at_ = 0, workspace_ = 0;
};

} // namespace

Onednn::Onednn() {
    // Debian's oneDNN 2.6.3 dies in its AMX code on some CPUs. It may be told only once, before its first use.
    static std::once_flag told;
    std::call_once(told, [] { dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16); });
    engine = dnnl::engine(dnnl::engine::kind::cpu, 0);
    stream = dnnl::stream(engine);
    constexpr auto least = static_cast<unsigned>(dnnl_cpu_isa_avx512_core); // a set of bits
    has_bf16 = (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & least) == least &&
               std::getenv("TUTTI_SIMD") == nullptr; // which asks for the kernels of lesser CPUs
}

std::unique_ptr<Kernel> make_matmul(std::shared_ptr<Onednn> onednn, const Matmul& matmul) {
    if (const tiles::Arithmetic* own = tiles::best(); own && fits_tiles(matmul)) return make_tiled(matmul, *own);
    if (matmul.left.dtype == DType::bfloat16 && !onednn->has_bf16) return make_widened(onednn, matmul);
    if (prefers_gemm(matmul)) return make_gemm(matmul);
    return std::make_unique<MatmulKernel>(std::move(onednn), matmul);
}

} // namespace tutti::backend::cpu
