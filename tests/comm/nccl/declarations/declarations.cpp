// That src/comm/nccl/nccl_calls.h says what nccl.h says: it compiles, or it does not.
#include "comm/nccl/nccl_calls.h"

#include <nccl.h>

#include <type_traits>

namespace tutti::nccl {

using namespace comm::nccl;
namespace {

// As the linker sees it: pointers are pointers, enumerations are ints.
template <class T>
struct Seen {
    using Type = std::conditional_t<std::is_pointer_v<T>, void*, T>;
};
template <class T>
requires std::is_enum_v<T>
struct Seen<T> {
    using Type = int;
};
template <>
struct Seen<ncclUniqueId> {
    using Type = UniqueId;
};

template <class Result, class... Arguments>
auto seen(Result (*)(Arguments...)) -> typename Seen<Result>::Type (*)(typename Seen<Arguments>::Type...);

template <class Ours, class Theirs>
constexpr bool agree = std::is_same_v<decltype(seen(Ours{})), decltype(seen(Theirs{}))>;

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) && alignof(UniqueId) == alignof(ncclUniqueId));
static_assert(agree<decltype(Calls::ncclGetVersion), decltype(&ncclGetVersion)>);
static_assert(agree<decltype(Calls::ncclGetErrorString), decltype(&ncclGetErrorString)>);
static_assert(agree<decltype(Calls::ncclGetUniqueId), decltype(&ncclGetUniqueId)>);
static_assert(agree<decltype(Calls::ncclCommInitRank), decltype(&ncclCommInitRank)>);
static_assert(agree<decltype(Calls::ncclCommDestroy), decltype(&ncclCommDestroy)>);
static_assert(agree<decltype(Calls::ncclCommAbort), decltype(&ncclCommAbort)>);
static_assert(agree<decltype(Calls::ncclCommGetAsyncError), decltype(&ncclCommGetAsyncError)>);
static_assert(agree<decltype(Calls::ncclGroupStart), decltype(&ncclGroupStart)>);
static_assert(agree<decltype(Calls::ncclGroupEnd), decltype(&ncclGroupEnd)>);
static_assert(agree<decltype(Calls::ncclAllReduce), decltype(&ncclAllReduce)>);
static_assert(agree<decltype(Calls::ncclReduceScatter), decltype(&ncclReduceScatter)>);
static_assert(agree<decltype(Calls::ncclReduce), decltype(&ncclReduce)>);
static_assert(agree<decltype(Calls::ncclAllGather), decltype(&ncclAllGather)>);
static_assert(agree<decltype(Calls::ncclBroadcast), decltype(&ncclBroadcast)>);
static_assert(agree<decltype(Calls::ncclSend), decltype(&ncclSend)>);
static_assert(agree<decltype(Calls::ncclRecv), decltype(&ncclRecv)>);

template <class Ours, class Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
    return static_cast<int>(ours) == static_cast<int>(theirs);
}
static_assert(same(Result::success, ncclSuccess) && same(Result::in_progress, ncclInProgress));
static_assert(same(Reduction::sum, ncclSum) && same(Reduction::maximum, ncclMax));
static_assert(same(Type::uint8, ncclUint8) && same(Type::int32, ncclInt32) && same(Type::int64, ncclInt64));
static_assert(same(Type::float16, ncclFloat16) && same(Type::float32, ncclFloat32));
static_assert(same(Type::float64, ncclFloat64) && same(Type::bfloat16, ncclBfloat16));

} // namespace
} // namespace tutti::nccl
