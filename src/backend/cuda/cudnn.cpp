#include "backend/cuda/cudnn.h"

#include "base/error.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

namespace tutti::backend::cuda {
namespace {

constexpr const char* library_name = "libcudnn_graph.so.9";
constexpr std::int64_t oldest_version = 91002; // older ones have faults in attention

// The folder that the code of a function was loaded from.
template <class Function>
std::filesystem::path folder_of(Function* function) {
    Dl_info info{};
    if (::dladdr(reinterpret_cast<const void*>(function), &info) == 0 || info.dli_fname == nullptr) return {};
    return std::filesystem::path(info.dli_fname).parent_path();
}

// Opens NVRTC of the CUDA that cuBLASLt is of. cuDNN opens it by its bare name, as it opens its built-in functions, and
// finds what is already open; without this the loader's own search has to find them.
void open_nvrtc() {
    const std::filesystem::path folder = folder_of(&cublasLtGetVersion);
    const std::string name = fmt::format("libnvrtc.so.{}", CUDART_VERSION / 1000);
    void* library = ::dlopen((folder / name).c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) return;
    auto* version = reinterpret_cast<int (*)(int*, int*)>(::dlsym(library, "nvrtcVersion"));
    int major = 0, minor = 0;
    if (version == nullptr || version(&major, &minor) != 0) return;
    ::dlopen((folder / fmt::format("libnvrtc-builtins.so.{}.{}", major, minor)).c_str(), RTLD_NOW | RTLD_GLOBAL);
}

// It opens its engines by itself, from its own folder or wherever the loader finds them. Stays open.
void* open_library() {
    open_nvrtc();
    std::vector<std::string> places;
    if (const char* folder = std::getenv("TUTTI_CUDNN")) places.push_back(std::string(folder) + "/" + library_name);
    places.push_back((folder_of(&open_nvrtc) / library_name).string());
    places.push_back(library_name);
    std::string refusals;
    for (const std::string& place : places) {
        if (void* library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
        const char* reason = ::dlerror();
        refusals += fmt::format("{}{}", refusals.empty() ? "" : "; ", reason ? reason : place);
    }
    throw CudnnError(refusals);
}

template <class Function>
void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    if (function == nullptr) throw CudnnError(fmt::format("{} has no function {}", library_name, name));
}

CudnnFunctions open_functions() {
    void* library = open_library();
    CudnnFunctions f{};
    find(library, "cudnnGetVersion", f.get_version);
    find(library, "cudnnGetErrorString", f.get_error_string);
    find(library, "cudnnGetLastErrorString", f.get_last_error_string);
    find(library, "cudnnCreate", f.create);
    find(library, "cudnnDestroy", f.destroy);
    find(library, "cudnnSetStream", f.set_stream);
    find(library, "cudnnBackendCreateDescriptor", f.create_descriptor);
    find(library, "cudnnBackendDestroyDescriptor", f.destroy_descriptor);
    find(library, "cudnnBackendSetAttribute", f.set_attribute);
    find(library, "cudnnBackendGetAttribute", f.get_attribute);
    find(library, "cudnnBackendFinalize", f.finalize);
    find(library, "cudnnBackendExecute", f.execute);
    const auto version = static_cast<std::int64_t>(f.get_version());
    if (version < oldest_version) throw CudnnError(fmt::format("cuDNN {} is older than {}", version, oldest_version));
    return f;
}

OperationGraph::Sizes dense(const OperationGraph::Sizes& sizes) {
    return {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
}

} // namespace

Cudnn::Cudnn() : functions_(open_functions()) { check(functions_.create(&handle_), "making a handle"); }

Cudnn::~Cudnn() { functions_.destroy(handle_); }

void Cudnn::check(cudnnStatus_t status, const std::string& what) const {
    if (status == CUDNN_STATUS_SUCCESS) return;
    std::array<char, 512> details{};
    functions_.get_last_error_string(details.data(), details.size());
    throw CudnnError(fmt::format("{}: {} {}", what, functions_.get_error_string(status), details.data()));
}

Descriptor::Descriptor(const Cudnn& cudnn, cudnnBackendDescriptorType_t type, std::string name)
    : cudnn_(&cudnn), name_(std::move(name)) {
    cudnn_->check(cudnn_->functions().create_descriptor(type, &pointer_), name_);
}
Descriptor::~Descriptor() {
    if (pointer_ != nullptr) cudnn_->functions().destroy_descriptor(pointer_);
}
Descriptor::Descriptor(Descriptor&& other) noexcept
    : cudnn_(other.cudnn_), name_(std::move(other.name_)), pointer_(std::exchange(other.pointer_, nullptr)) {}

void Descriptor::set(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type, std::int64_t count,
                     const void* values) {
    const cudnnStatus_t status = cudnn_->functions().set_attribute(pointer_, attribute, type, count, values);
    cudnn_->check(status, fmt::format("{}, attribute {}", name_, static_cast<int>(attribute)));
}
void Descriptor::finalize() { cudnn_->check(cudnn_->functions().finalize(pointer_), name_); }

std::int64_t Descriptor::get(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type,
                             std::int64_t count, void* values) const {
    std::int64_t there = 0;
    const cudnnStatus_t status = cudnn_->functions().get_attribute(pointer_, attribute, type, count, &there, values);
    cudnn_->check(status, fmt::format("{}, reading attribute {}", name_, static_cast<int>(attribute)));
    return there;
}

OperationGraph::Tensor OperationGraph::add(const std::string& name, cudnnDataType_t type, const Sizes& sizes,
                                           const Sizes& strides, cudnnBackendAttributeName_t* flag) {
    constexpr std::int64_t alignment = 16;
    const auto id = static_cast<std::int64_t>(tensors_.size()) + 1;
    Descriptor& tensor = tensors_.emplace_back(*cudnn_, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor " + name);
    tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::ssize(sizes), sizes.data());
    tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::ssize(strides), strides.data());
    tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
    tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
    if (flag != nullptr) tensor.set(*flag, CUDNN_TYPE_BOOLEAN, true);
    tensor.finalize();
    return tensors_.size() - 1;
}

OperationGraph::Tensor OperationGraph::operand(const std::string& name, cudnnDataType_t type, const Sizes& sizes,
                                               const Sizes& strides) {
    const Tensor tensor = add(name, type, sizes, strides, nullptr);
    operand_ids_.push_back(static_cast<std::int64_t>(tensor) + 1);
    return tensor;
}
OperationGraph::Tensor OperationGraph::between(const std::string& name, cudnnDataType_t type, const Sizes& sizes) {
    return between(name, type, sizes, dense(sizes));
}
OperationGraph::Tensor OperationGraph::between(const std::string& name, cudnnDataType_t type, const Sizes& sizes,
                                               const Sizes& strides) {
    cudnnBackendAttributeName_t flag = CUDNN_ATTR_TENSOR_IS_VIRTUAL;
    return add(name, type, sizes, strides, &flag);
}
OperationGraph::Tensor OperationGraph::constant(const std::string& name, float value) {
    cudnnBackendAttributeName_t flag = CUDNN_ATTR_TENSOR_IS_BY_VALUE;
    const Tensor tensor = add(name, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, &flag);
    constant_ids_.push_back(static_cast<std::int64_t>(tensor) + 1);
    constants_.push_back(value);
    return tensor;
}

Descriptor& OperationGraph::add_operation(cudnnBackendDescriptorType_t type, const std::string& name) {
    return operations_.emplace_back(*cudnn_, type, "operation " + name);
}

void OperationGraph::add_pointwise(const std::string& name, cudnnPointwiseMode_t mode, std::span<const Tensor> inputs,
                                   Tensor out, cudnnDataType_t computed_in, const std::int64_t* axis) {
    Descriptor& kind = kinds_.emplace_back(*cudnn_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "kind of " + name);
    kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, computed_in);
    if (axis != nullptr) kind.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, *axis);
    kind.finalize();

    constexpr cudnnBackendAttributeName_t places[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                                      CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                                      CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
    Descriptor& operation = add_operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, name);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    for (std::size_t i = 0; i < inputs.size(); ++i) operation.set(places[i], tensors_[inputs[i]]);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors_[out]);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, 1.0f);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, 1.0f);
    operation.finalize();
}

void OperationGraph::pointwise(const std::string& name, cudnnPointwiseMode_t mode, std::initializer_list<Tensor> inputs,
                               Tensor out, cudnnDataType_t computed_in) {
    add_pointwise(name, mode, std::span(inputs.begin(), inputs.size()), out, computed_in, nullptr);
}
void OperationGraph::index(const std::string& name, std::int64_t dimension, Tensor like, Tensor out) {
    add_pointwise(name, CUDNN_POINTWISE_GEN_INDEX, std::span(&like, 1), out, CUDNN_DATA_FLOAT, &dimension);
}

void OperationGraph::matmul(const std::string& name, Tensor left, Tensor right, Tensor out) {
    Descriptor& kind = kinds_.emplace_back(*cudnn_, CUDNN_BACKEND_MATMUL_DESCRIPTOR, "kind of " + name);
    kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    kind.finalize();
    Descriptor& operation = add_operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, name);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensors_[left]);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensors_[right]);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensors_[out]);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    operation.finalize();
}

void OperationGraph::reduce(const std::string& name, cudnnReduceTensorOp_t by, Tensor in, Tensor out) {
    Descriptor& kind = kinds_.emplace_back(*cudnn_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "kind of " + name);
    kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, by);
    kind.finalize();
    Descriptor& operation = add_operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, name);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensors_[in]);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensors_[out]);
    operation.finalize();
}

void OperationGraph::reshape(const std::string& name, Tensor in, Tensor out) {
    Descriptor& operation = add_operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, name);
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensors_[in]);
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensors_[out]);
    operation.finalize();
}

Descriptor OperationGraph::finish() const {
    std::vector<cudnnBackendDescriptor_t> pointers;
    for (const Descriptor& operation : operations_) pointers.push_back(operation.pointer());
    Descriptor graph(*cudnn_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "graph");
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(pointers), pointers.data());
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, cudnn_->handle());
    graph.finalize();
    return graph;
}

} // namespace tutti::backend::cuda
