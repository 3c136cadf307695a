#include "comm/nccl/nccl_calls.h"

#include "base/error.h"

#include <dlfcn.h>

#include <cstdlib>

namespace tutti::comm::nccl {
namespace {

// With 2.9 NCCL began to count in other digits: 2.8.4 is 2804, 2.10.3 is 21003.
constexpr int oldest = 21000; // where bfloat16 came

std::string text_of(int version) {
    const int major = version < 10000 ? 1000 : 10000;
    return fmt::format("{}.{}.{}", version / major, version % major / 100, version % 100);
}

} // namespace

Library open_library() {
    const char* named = std::getenv("TUTTI_NCCL");
    const std::string file = named && *named ? named : "libnccl.so.2";
    void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL); // stays open as long as the program
    if (library == nullptr)
        fail("NCCL cannot be used here: {}; install it, or name its file in TUTTI_NCCL", ::dlerror());
    const auto find = [&](auto*& call, const char* name) {
        call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(::dlsym(library, name));
        if (call == nullptr) fail("NCCL cannot be used here: {} has no {}", file, name);
    };
    Calls calls{};
    find(calls.ncclGetVersion, "ncclGetVersion");
    int version = 0;
    calls.ncclGetVersion(&version);
    if (version < oldest)
        fail("NCCL cannot be used here: {} is version {}; {} or newer is needed", file, text_of(version),
             text_of(oldest));
    find(calls.ncclGetErrorString, "ncclGetErrorString");
    find(calls.ncclGetUniqueId, "ncclGetUniqueId");
    find(calls.ncclCommInitRank, "ncclCommInitRank");
    find(calls.ncclCommDestroy, "ncclCommDestroy");
    find(calls.ncclCommAbort, "ncclCommAbort");
    find(calls.ncclCommGetAsyncError, "ncclCommGetAsyncError");
    find(calls.ncclGroupStart, "ncclGroupStart");
    find(calls.ncclGroupEnd, "ncclGroupEnd");
    find(calls.ncclAllReduce, "ncclAllReduce");
    find(calls.ncclReduceScatter, "ncclReduceScatter");
    find(calls.ncclReduce, "ncclReduce");
    find(calls.ncclAllGather, "ncclAllGather");
    find(calls.ncclBroadcast, "ncclBroadcast");
    find(calls.ncclSend, "ncclSend");
    find(calls.ncclRecv, "ncclRecv");
    return {calls, text_of(version)};
}

} // namespace tutti::comm::nccl
