// Groups of devices that NCCL connects. The host only gives operations to streams; who watches over them asks check().
// NCCL adds in an order of its own.
#include "base/error.h"
#include "comm/device_group.h"
#include "comm/nccl/nccl_calls.h"

#include <algorithm>
#include <numeric>

namespace tutti::comm::nccl {
namespace {

Type type_of(DType dtype) {
    switch (dtype) {
    case DType::float64: return Type::float64;
    case DType::float32: return Type::float32;
    case DType::float16: return Type::float16;
    case DType::bfloat16: return Type::bfloat16;
    case DType::int64: return Type::int64;
    case DType::int32: return Type::int32;
    default: fail("NCCL does not reduce {}", name_of(dtype));
    }
}
Reduction reduction_of(Combine combine) { return combine == Combine::sum ? Reduction::sum : Reduction::maximum; }

std::size_t elements(std::int64_t bytes, DType dtype) { return static_cast<std::size_t>(bytes / size_of(dtype)); }

Bytes sum_of(std::span<const std::int64_t> counts) {
    return {std::accumulate(counts.begin(), counts.end(), std::int64_t{0})};
}
bool are_equal(std::span<const std::int64_t> counts) {
    return std::ranges::adjacent_find(counts, std::not_equal_to()) == counts.end();
}

class NcclGroup final : public DeviceGroup {
  public:
    NcclGroup(const Calls& calls, std::string name, int rank, int size, const UniqueId& id)
        : calls_(calls), name_(std::move(name)), rank_(rank), size_(size) {
        expect(calls_.ncclCommInitRank(&communicator_, size, id, rank), "connecting");
    }
    ~NcclGroup() override { // streams have come to an end by now
        if (communicator_ != nullptr) calls_.ncclCommDestroy(communicator_);
    }

    const std::string& name() const override { return name_; }
    int rank() const override { return rank_; }
    int size() const override { return size_; }

    void all_reduce(const std::byte* in, std::byte* out, Bytes size, DType dtype, Combine combine,
                    Stream stream) override {
        begin("all_reduce", size);
        expect(calls_.ncclAllReduce(in, out, elements(size.count, dtype), type_of(dtype), reduction_of(combine),
                                    communicator_, stream));
    }
    void all_gather(const std::byte* mine, std::byte* all, std::span<const std::int64_t> counts,
                    Stream stream) override {
        begin("all_gather", sum_of(counts));
        if (are_equal(counts)) {
            const auto each = static_cast<std::size_t>(counts[0]);
            return expect(calls_.ncclAllGather(mine, all, each, Type::uint8, communicator_, stream));
        }
        together([&] {
            return for_each(counts, [&](int root, std::size_t count, std::int64_t offset) {
                return calls_.ncclBroadcast(root == rank_ ? mine : all + offset, all + offset, count, Type::uint8, root,
                                            communicator_, stream);
            });
        });
    }
    void reduce_scatter(const std::byte* all, std::byte* mine, std::span<const std::int64_t> counts, DType dtype,
                        Combine combine, Stream stream) override {
        begin("reduce_scatter", sum_of(counts));
        if (are_equal(counts))
            return expect(calls_.ncclReduceScatter(all, mine, elements(counts[0], dtype), type_of(dtype),
                                                   reduction_of(combine), communicator_, stream));
        together([&] {
            return for_each(counts, [&](int root, std::size_t count, std::int64_t offset) {
                return calls_.ncclReduce(all + offset, mine, elements(static_cast<std::int64_t>(count), dtype),
                                         type_of(dtype), reduction_of(combine), root, communicator_, stream);
            });
        });
    }
    void all_to_all(const std::byte* out, std::span<const std::int64_t> out_counts, std::byte* in,
                    std::span<const std::int64_t> in_counts, Stream stream) override {
        begin("all_to_all", sum_of(out_counts));
        together([&] {
            const Result sent = for_each(out_counts, [&](int to, std::size_t count, std::int64_t offset) {
                return calls_.ncclSend(out + offset, count, Type::uint8, to, communicator_, stream);
            });
            if (sent != Result::success) return sent;
            return for_each(in_counts, [&](int from, std::size_t count, std::int64_t offset) {
                return calls_.ncclRecv(in + offset, count, Type::uint8, from, communicator_, stream);
            });
        });
    }
    void broadcast(std::byte* data, Bytes size, int root, Stream stream) override {
        begin("broadcast", size);
        expect(calls_.ncclBroadcast(data, data, static_cast<std::size_t>(size.count), Type::uint8, root, communicator_,
                                    stream));
    }
    void send(const std::byte* data, Bytes size, int to, Stream stream) override {
        begin("send", size);
        expect(calls_.ncclSend(data, static_cast<std::size_t>(size.count), Type::uint8, to, communicator_, stream));
    }
    void receive(std::byte* data, Bytes size, int from, Stream stream) override {
        begin("receive", size);
        expect(calls_.ncclRecv(data, static_cast<std::size_t>(size.count), Type::uint8, from, communicator_, stream));
    }

    DeviceOperation latest() const override { return latest_; }
    void check() override {
        if (communicator_ == nullptr) return;
        Result state = Result::success;
        expect(calls_.ncclCommGetAsyncError(communicator_, &state), "asking for errors");
        if (state != Result::in_progress) expect(state, "communicating");
    }
    void abandon() noexcept override {
        if (communicator_ != nullptr) calls_.ncclCommAbort(communicator_);
        communicator_ = nullptr;
    }

  private:
    void begin(const char* operation, Bytes bytes) {
        TUTTI_CHECK(communicator_ != nullptr, "{} of group {}, which was abandoned", operation, name_);
        latest_ = {operation, latest_.sequence + 1, bytes};
    }
    void expect(Result result, const char* what) const {
        if (result == Result::success) return;
        fail_world("{} in group {}: NCCL says {}", what, name_, calls_.ncclGetErrorString(result));
    }
    void expect(Result result) const {
        if (result == Result::success) return;
        fail_world("{} {} of group {} ({}): NCCL says {}", latest_.name, latest_.sequence, name_,
                   to_string(latest_.bytes), calls_.ncclGetErrorString(result));
    }
    // Calls give(rank, count, offset) for all parts that are not empty, until one fails.
    template <class Give>
    Result for_each(std::span<const std::int64_t> counts, Give give) const {
        std::int64_t offset = 0;
        Result result = Result::success;
        for (int rank = 0; rank < size_ && result == Result::success; ++rank) {
            const std::int64_t count = counts[static_cast<std::size_t>(rank)];
            if (count > 0) result = give(rank, static_cast<std::size_t>(count), offset);
            offset += count;
        }
        return result;
    }
    template <class Give>
    void together(Give give) const {
        expect(calls_.ncclGroupStart());
        const Result given = give(), ended = calls_.ncclGroupEnd(); // also where it failed
        expect(given);
        expect(ended);
    }

    const Calls calls_;
    std::string name_;
    int rank_, size_;
    Communicator communicator_ = nullptr;
    DeviceOperation latest_;
};

class NcclNetwork final : public DeviceNetwork {
  public:
    std::string library() const override { return "NCCL " + library_.version; }
    std::unique_ptr<DeviceGroup> group(std::string name, Group& host, const std::vector<int>& members) override {
        const auto mine = std::ranges::find(members, host.rank());
        TUTTI_CHECK(mine != members.end(), "rank {} is no member of {}", host.rank(), name);
        UniqueId id{};
        if (mine == members.begin() && library_.calls.ncclGetUniqueId(&id) != Result::success)
            fail_world("NCCL finds no network for group {}", name);
        const auto bytes = std::as_writable_bytes(std::span(id.bytes));
        if (mine != members.begin()) host.wait(host.receive(bytes, members.front()));
        for (auto other = members.begin() + 1; mine == members.begin() && other != members.end(); ++other)
            host.wait(host.send(bytes, *other));
        return std::make_unique<NcclGroup>(library_.calls, std::move(name), static_cast<int>(mine - members.begin()),
                                           static_cast<int>(members.size()), id);
    }

  private:
    Library library_ = open_library();
};

} // namespace

extern "C" __attribute__((visibility("default"))) DeviceNetwork* tutti_open_device_network() { return new NcclNetwork; }

} // namespace tutti::comm::nccl
