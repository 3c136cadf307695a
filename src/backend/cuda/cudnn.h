// cuDNN, opened at run time where it is there, and its graph interface: operations on described tensors make a graph,
// an engine that supports the graph makes a plan, and the plan runs on pointers. Its heuristics say which engines fit;
// where their library is not there, the engines are tried one after the other.
#pragma once

#include "base/units.h"

#include <cudnn_graph.h>

#include <array>
#include <deque>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace tutti::backend::cuda {

// What cuDNN refused or failed to do, and why.
struct CudnnError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The functions we use, found by their names.
struct CudnnFunctions {
    decltype(&cudnnGetVersion) get_version;
    decltype(&cudnnGetErrorString) get_error_string;
    decltype(&cudnnGetLastErrorString) get_last_error_string;
    decltype(&cudnnCreate) create;
    decltype(&cudnnDestroy) destroy;
    decltype(&cudnnSetStream) set_stream;
    decltype(&cudnnBackendCreateDescriptor) create_descriptor;
    decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor;
    decltype(&cudnnBackendSetAttribute) set_attribute;
    decltype(&cudnnBackendGetAttribute) get_attribute;
    decltype(&cudnnBackendFinalize) finalize;
    decltype(&cudnnBackendExecute) execute;
};

class Cudnn;

// One of cuDNN's objects: its attributes are set, it is finalized, and others refer to it.
class Descriptor {
  public:
    Descriptor(const Cudnn& cudnn, cudnnBackendDescriptorType_t type, std::string name);
    ~Descriptor();
    Descriptor(Descriptor&& other) noexcept;
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;

    void set(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type, std::int64_t count,
             const void* values);
    template <class T>
    void set(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type, const T& value) {
        set(attribute, type, 1, &value);
    }
    void set(cudnnBackendAttributeName_t attribute, const Descriptor& other) {
        set(attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other.pointer_);
    }
    void finalize();
    // Returns how many of at most `count` values there are.
    std::int64_t get(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type, std::int64_t count,
                     void* values) const;
    cudnnBackendDescriptor_t pointer() const { return pointer_; }

  private:
    const Cudnn* cudnn_;
    std::string name_;
    cudnnBackendDescriptor_t pointer_ = nullptr;
};

// The library, and its handle of the GPU at hand. CudnnError where it is not there, or too old.
class Cudnn {
  public:
    Cudnn();
    ~Cudnn();
    Cudnn(const Cudnn&) = delete;
    Cudnn& operator=(const Cudnn&) = delete;

    const CudnnFunctions& functions() const { return functions_; }
    std::int64_t version() const { return static_cast<std::int64_t>(functions_.get_version()); } // 91900: 9.19.0
    cudnnHandle_t handle() const { return handle_; }
    // CudnnError saying what was done and what cuDNN says to it.
    void check(cudnnStatus_t status, const std::string& what) const;

  private:
    CudnnFunctions functions_;
    cudnnHandle_t handle_ = nullptr;
};

// Operations on tensors of four dimensions, computed in float32.
class OperationGraph {
  public:
    using Sizes = std::array<std::int64_t, 4>;
    using Tensor = std::size_t; // its number

    explicit OperationGraph(std::shared_ptr<const Cudnn> cudnn) : cudnn_(std::move(cudnn)) {}

    const Cudnn& cudnn() const { return *cudnn_; }

    // In memory: each run is given its pointer, aligned to 16 bytes, in the order of these calls.
    Tensor operand(const std::string& name, cudnnDataType_t type, const Sizes& sizes, const Sizes& strides);
    // Between two operations. Dense, unless strides are given.
    Tensor between(const std::string& name, cudnnDataType_t type, const Sizes& sizes);
    Tensor between(const std::string& name, cudnnDataType_t type, const Sizes& sizes, const Sizes& strides);
    Tensor constant(const std::string& name, float value);

    void pointwise(const std::string& name, cudnnPointwiseMode_t mode, std::initializer_list<Tensor> inputs, Tensor out,
                   cudnnDataType_t computed_in = CUDNN_DATA_FLOAT);
    // out[...] = the place along the dimension
    void index(const std::string& name, std::int64_t dimension, Tensor like, Tensor out);
    void matmul(const std::string& name, Tensor left, Tensor right, Tensor out);
    // Along the dimensions in which `out` has size 1.
    void reduce(const std::string& name, cudnnReduceTensorOp_t by, Tensor in, Tensor out);
    // The same memory with other sizes and strides.
    void reshape(const std::string& name, Tensor in, Tensor out);

    // All operations, finalized.
    Descriptor finish() const;
    // For the variant pack: numbers and pointers of operands, then of constants.
    const std::vector<std::int64_t>& operand_ids() const { return operand_ids_; }
    const std::vector<std::int64_t>& constant_ids() const { return constant_ids_; }
    const std::deque<float>& constants() const { return constants_; }

  private:
    Tensor add(const std::string& name, cudnnDataType_t type, const Sizes& sizes, const Sizes& strides,
               cudnnBackendAttributeName_t* flag);
    Descriptor& add_operation(cudnnBackendDescriptorType_t type, const std::string& name);
    void add_pointwise(const std::string& name, cudnnPointwiseMode_t mode, std::span<const Tensor> inputs, Tensor out,
                       cudnnDataType_t computed_in, const std::int64_t* axis);

    std::shared_ptr<const Cudnn> cudnn_;
    std::vector<Descriptor> tensors_, kinds_, operations_;
    std::vector<std::int64_t> operand_ids_, constant_ids_;
    std::deque<float> constants_; // cuDNN keeps pointers to them
};

// A graph made runnable by an engine.
class CudnnPlan {
  public:
    // Deterministic ones, best first as far as cuDNN knows: at most so many. CudnnError saying what the engines lack
    // where none supports the graph.
    static std::vector<CudnnPlan> all(OperationGraph graph, std::size_t most);

    Bytes workspace() const { return workspace_; }
    const std::string& engine() const { return engine_; } // in words, the same in every run
    // Gives the work to the stream. CudnnError where that fails.
    void run(cudaStream_t stream, std::span<void* const> operands, void* workspace) const;

  private:
    struct Graph;
    struct Configuration;
    CudnnPlan(std::shared_ptr<const Graph> graph, Configuration configuration);
    static std::vector<Configuration> proposed(const Graph& graph);
    static Configuration configured(const Graph& graph, std::int64_t engine, std::optional<std::int64_t> kernel);

    std::shared_ptr<const Graph> graph_;
    std::vector<Descriptor> parts_; // the plan, and what it refers to
    std::string engine_;
    Bytes workspace_;
};

} // namespace tutti::backend::cuda
