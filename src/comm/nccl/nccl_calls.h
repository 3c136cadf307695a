// The calls of NCCL that are used, as its library has exported them since version 2.10. They are declared here, and not
// taken from nccl.h, so that the plug-in is built and tested on machines without NCCL and CUDA; tests/comm/nccl
// compares the two where nccl.h is there.
#pragma once

#include <cstddef>
#include <string>

namespace tutti::comm::nccl {

struct UniqueId { // tells a communicator from all others
    char bytes[128];
};
struct CommunicatorState;
using Communicator = CommunicatorState*;
using Stream = void*; // cudaStream_t is a pointer, too

enum class Result : int { success = 0, in_progress = 7 };
enum class Type : int { uint8 = 1, int32 = 2, int64 = 4, float16 = 6, float32 = 7, float64 = 8, bfloat16 = 9 };
enum class Reduction : int { sum = 0, maximum = 2 };

struct Calls {
    Result (*ncclGetVersion)(int*);
    const char* (*ncclGetErrorString)(Result);
    Result (*ncclGetUniqueId)(UniqueId*);
    Result (*ncclCommInitRank)(Communicator*, int ranks, UniqueId, int rank);
    Result (*ncclCommDestroy)(Communicator);
    Result (*ncclCommAbort)(Communicator);
    Result (*ncclCommGetAsyncError)(Communicator, Result*);
    Result (*ncclGroupStart)();
    Result (*ncclGroupEnd)();
    Result (*ncclAllReduce)(const void*, void*, std::size_t, Type, Reduction, Communicator, Stream);
    Result (*ncclReduceScatter)(const void*, void*, std::size_t each, Type, Reduction, Communicator, Stream);
    Result (*ncclReduce)(const void*, void*, std::size_t, Type, Reduction, int root, Communicator, Stream);
    Result (*ncclAllGather)(const void*, void*, std::size_t each, Type, Communicator, Stream);
    Result (*ncclBroadcast)(const void*, void*, std::size_t, Type, int root, Communicator, Stream);
    Result (*ncclSend)(const void*, std::size_t, Type, int to, Communicator, Stream);
    Result (*ncclRecv)(void*, std::size_t, Type, int from, Communicator, Stream);
};

struct Library {
    Calls calls;
    std::string version; // "2.27.3"
};
// The one that TUTTI_NCCL names, or libnccl.so.2. Error where it does not open, is none or is too old.
Library open_library();

} // namespace tutti::comm::nccl
