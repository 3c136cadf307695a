// A constant table in device memory, filled when a kernel is prepared.
#pragma once

#include "backend/cuda/cuda.h"

#include <vector>

namespace tutti::backend::cuda {

template <class T>
class DeviceArray {
  public:
    explicit DeviceArray(const std::vector<T>& values) {
        if (values.empty()) return;
        const std::size_t bytes = values.size() * sizeof(T);
        check(cudaMalloc(&data_, bytes), "allocating a kernel's table");
        copy_now(data_, values.data(), bytes, "filling a kernel's table");
    }
    ~DeviceArray() { cudaFree(data_); }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;

    const T* data() const { return data_; }

  private:
    T* data_ = nullptr;
};

} // namespace tutti::backend::cuda
