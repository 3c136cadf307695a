// The CUDA device for tests, opened once. Where there is none, its tests are skipped and say why; with
// TUTTI_REQUIRE_CUDA set they fail.
#pragma once

#include "backend/plugin.h"
#include "base/error.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace tutti::testing {

struct CudaDevice {
    std::unique_ptr<backend::Device> device;
    std::string missing; // why there is none
};

inline const CudaDevice& cuda_device() {
    static const CudaDevice opened = [] {
        CudaDevice result;
        try {
            result.device = backend::open_plugin_device("cuda");
        } catch (const Error& error) {
            result.missing = error.what();
        }
        return result;
    }();
    return opened;
}

// For SetUp of fixtures that need it.
inline void skip_without_cuda() {
    if (cuda_device().device) return;
    if (std::getenv("TUTTI_REQUIRE_CUDA") != nullptr) FAIL() << cuda_device().missing;
    GTEST_SKIP() << cuda_device().missing;
}

} // namespace tutti::testing
