// The calls of NCCL that Tutti uses, over messages in shared memory: for ranks that share a machine and have no GPUs of
// their own. Operations are given to streams and done there, as NCCL's are; grouped ones are one. Sums are formed in
// rank order.
#include "base/dtype.h"
#include "base/error.h"
#include "nccl_stand_in/messages.h"
#include "nccl_stand_in/on_stream.h"

#include "comm/nccl/nccl_calls.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <sstream>

namespace tutti::comm::nccl {

struct CommunicatorState {
    std::shared_ptr<test::Messages> messages;
    int rank = 0, size = 1;
};

} // namespace tutti::comm::nccl

namespace tutti::test {

using namespace comm::nccl;
namespace {

using comm::nccl::Communicator, comm::nccl::Reduction, comm::nccl::Result, comm::nccl::Type, comm::nccl::UniqueId;

constexpr auto remote_error = static_cast<Result>(6), invalid_argument = static_cast<Result>(4);
std::atomic<bool> is_broken = false;

std::size_t size_of(Type type) {
    switch (type) {
    case Type::uint8: return 1;
    case Type::float16:
    case Type::bfloat16: return 2;
    case Type::int32:
    case Type::float32: return 4;
    default: return 8;
    }
}

template <class T>
void combine(std::byte* into, const std::byte* part, std::size_t bytes, Reduction reduction) {
    for (std::size_t at = 0; at < bytes; at += sizeof(T)) {
        T a, b;
        std::memcpy(&a, into + at, sizeof(T));
        std::memcpy(&b, part + at, sizeof(T));
        const auto x = static_cast<std::conditional_t<sizeof(T) == 2, float, T>>(a);
        const auto y = static_cast<decltype(x)>(b);
        const T result(reduction == Reduction::sum ? x + y : std::max(x, y));
        std::memcpy(into + at, &result, sizeof(T));
    }
}

void combine(std::byte* into, const std::byte* part, std::size_t bytes, Type type, Reduction reduction) {
    switch (type) {
    case Type::float64: return combine<double>(into, part, bytes, reduction);
    case Type::float32: return combine<float>(into, part, bytes, reduction);
    case Type::bfloat16: return combine<BFloat16>(into, part, bytes, reduction);
    case Type::float16: return combine<Float16>(into, part, bytes, reduction);
    case Type::int64: return combine<std::int64_t>(into, part, bytes, reduction);
    case Type::int32: return combine<std::int32_t>(into, part, bytes, reduction);
    default: TUTTI_CHECK(false, "the stand-in does not reduce type {}", static_cast<int>(type));
    }
}

// What one rank does in a call: it sends, receives from some ranks in order, and makes its result of what came.
struct Call {
    struct Out {
        int to;
        const void* data;
        std::size_t bytes;
    };
    std::vector<Out> out;
    std::vector<int> from;
    std::size_t each = 0; // bytes that come from every one of them
    void* result = nullptr;
    bool reduces = false; // otherwise what comes is laid one behind the other
    Type type = Type::uint8;
    Reduction reduction = Reduction::sum;
};

void carry_out(const std::vector<Call>& calls, Messages& messages, DeviceCopies& device) {
    std::vector<std::string> posted;
    for (const Call& call : calls)
        for (const Call::Out& out : call.out) posted.push_back(messages.post(out.to, device.read(out.data, out.bytes)));
    for (const Call& call : calls) {
        std::vector<std::byte> result;
        for (const int from : call.from) {
            const std::vector<std::byte> part = messages.receive(from, call.each);
            if (messages.given_up()) break;
            if (call.reduces && !result.empty())
                combine(result.data(), part.data(), part.size(), call.type, call.reduction);
            else
                result.insert(result.end(), part.begin(), part.end());
        }
        if (!messages.given_up() && !call.from.empty()) device.write(call.result, result);
    }
    for (const std::string& message : posted) messages.wait_until_taken(message);
}

struct Grouped {
    int depth = 0;
    std::vector<Call> calls;
    Communicator communicator = nullptr;
    comm::nccl::Stream stream = nullptr;
};
thread_local Grouped grouped;

void give_grouped() {
    if (grouped.calls.empty()) return;
    give(grouped.stream, [calls = std::move(grouped.calls), messages = grouped.communicator->messages](
                             DeviceCopies& device) { carry_out(calls, *messages, device); });
    grouped.calls.clear();
}

Result add(Call call, Communicator communicator, comm::nccl::Stream stream) {
    const bool goes_with_others =
        grouped.calls.empty() || (grouped.communicator == communicator && grouped.stream == stream);
    if (communicator == nullptr || !goes_with_others) return invalid_argument;
    grouped.communicator = communicator;
    grouped.stream = stream;
    grouped.calls.push_back(std::move(call));
    if (grouped.depth == 0) give_grouped();
    return Result::success;
}

std::vector<int> everyone(Communicator communicator) {
    std::vector<int> ranks(static_cast<std::size_t>(communicator->size));
    for (int rank = 0; rank < communicator->size; ++rank) ranks[static_cast<std::size_t>(rank)] = rank;
    return ranks;
}

} // namespace

extern "C" {

// For tests: from now on, or no longer, all communicators say that a rank was lost.
void stand_in_break(bool broken) { is_broken = broken; }

// TUTTI_STAND_IN_VERSIONS: a list, of which everyone who asks is told another.
Result ncclGetVersion(int* version) {
    static std::atomic<std::size_t> asked = 0;
    const char* given = std::getenv("TUTTI_STAND_IN_VERSIONS");
    std::istringstream list(given ? given : "22703");
    const std::vector<int> versions((std::istream_iterator<int>(list)), {});
    *version = versions[asked++ % versions.size()];
    return Result::success;
}

const char* ncclGetErrorString(Result result) {
    return result == remote_error ? "remote process exited or there was a network error" : "invalid argument";
}

Result ncclGetUniqueId(UniqueId* id) {
    static std::atomic<int> made = 0;
    const std::string name = fmt::format("tutti-nccl-{}-{}-{:x}", ::getpid(), made++, std::random_device()());
    *id = {};
    std::ranges::copy(name, id->bytes);
    return Result::success;
}

Result ncclCommInitRank(Communicator* communicator, int ranks, UniqueId id, int rank) {
    *communicator = new comm::nccl::CommunicatorState{std::make_shared<Messages>(id.bytes, rank), rank, ranks};
    return Result::success;
}
Result ncclCommDestroy(Communicator communicator) {
    delete communicator;
    return Result::success;
}
Result ncclCommAbort(Communicator communicator) {
    communicator->messages->give_up();
    delete communicator;
    return Result::success;
}
Result ncclCommGetAsyncError(Communicator, Result* state) {
    *state = is_broken ? remote_error : Result::success;
    return Result::success;
}

Result ncclGroupStart() {
    ++grouped.depth;
    return Result::success;
}
Result ncclGroupEnd() {
    if (--grouped.depth == 0) give_grouped();
    return Result::success;
}

Result ncclAllReduce(const void* in, void* out, std::size_t count, Type type, Reduction reduction,
                     Communicator communicator, comm::nccl::Stream stream) {
    Call call{{}, everyone(communicator), count * size_of(type), out, true, type, reduction};
    for (const int rank : call.from) call.out.push_back({rank, in, call.each});
    return add(std::move(call), communicator, stream);
}
Result ncclReduceScatter(const void* in, void* out, std::size_t each, Type type, Reduction reduction,
                         Communicator communicator, comm::nccl::Stream stream) {
    Call call{{}, everyone(communicator), each * size_of(type), out, true, type, reduction};
    for (const int rank : call.from)
        call.out.push_back(
            {rank, static_cast<const std::byte*>(in) + static_cast<std::size_t>(rank) * call.each, call.each});
    return add(std::move(call), communicator, stream);
}
Result ncclReduce(const void* in, void* out, std::size_t count, Type type, Reduction reduction, int root,
                  Communicator communicator, comm::nccl::Stream stream) {
    Call call{{{root, in, count * size_of(type)}}, {}, count * size_of(type), out, true, type, reduction};
    if (root == communicator->rank) call.from = everyone(communicator);
    return add(std::move(call), communicator, stream);
}
Result ncclAllGather(const void* in, void* out, std::size_t each, Type type, Communicator communicator,
                     comm::nccl::Stream stream) {
    Call call{{}, everyone(communicator), each * size_of(type), out};
    for (const int rank : call.from) call.out.push_back({rank, in, call.each});
    return add(std::move(call), communicator, stream);
}
Result ncclBroadcast(const void* in, void* out, std::size_t count, Type type, int root, Communicator communicator,
                     comm::nccl::Stream stream) {
    Call call{{}, {root}, count * size_of(type), out};
    for (const int rank : everyone(communicator))
        if (root == communicator->rank) call.out.push_back({rank, in, call.each});
    return add(std::move(call), communicator, stream);
}
Result ncclSend(const void* in, std::size_t count, Type type, int to, Communicator communicator,
                comm::nccl::Stream stream) {
    return add({{{to, in, count * size_of(type)}}, {}, 0, nullptr}, communicator, stream);
}
Result ncclRecv(void* out, std::size_t count, Type type, int from, Communicator communicator,
                comm::nccl::Stream stream) {
    return add({{}, {from}, count * size_of(type), out}, communicator, stream);
}

} // extern "C"

} // namespace tutti::test
