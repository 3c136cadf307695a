#include "comm/nccl/nccl_calls.h"

#include "base/error.h"

#include <dlfcn.h>

#include <cstdlib>

namespace tutti::nccl {

Calls open_calls() {
    const char* named = std::getenv("TUTTI_NCCL");
    const std::string file = named && *named ? named : "libnccl.so.2";
    void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL); // stays open as long as the program
    if (library == nullptr)
        fail("NCCL cannot be used here: {} is not found; install it, or name the file in TUTTI_NCCL", file);
    const auto find = [&](auto*& call, const char* name) {
        call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(::dlsym(library, name));
        if (call == nullptr) fail("NCCL cannot be used here: {} has no {}; version 2.7 or newer does", file, name);
    };
    Calls calls{};
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
    return calls;
}

} // namespace tutti::nccl
