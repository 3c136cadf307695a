// One rank: every operation is done when it starts.
#include "base/error.h"
#include "comm/single_group.h"

#include <cstring>

namespace tutti::comm {
namespace {

class SingleGroup final : public Group {
  public:
    explicit SingleGroup(std::string name) : name_(std::move(name)) {}

    const std::string& name() const override { return name_; }
    int rank() const override { return 0; }
    int size() const override { return 1; }

    Ticket all_reduce(std::span<std::byte>, DType, Combine) override { return 0; }
    Ticket all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                      std::span<const std::int64_t>) override {
        return copy(all, mine);
    }
    Ticket reduce_scatter(std::span<const std::byte> all, std::span<std::byte> mine, std::span<const std::int64_t>,
                          DType, Combine) override {
        return copy(mine, all);
    }
    Ticket all_to_all(std::span<const std::byte> out, std::span<const std::int64_t>, std::span<std::byte> in,
                      std::span<const std::int64_t>) override {
        return copy(in, out);
    }
    Ticket broadcast(std::span<std::byte>, int) override { return 0; }
    Ticket send(std::span<const std::byte>, int) override { return nobody(); }
    Ticket receive(std::span<std::byte>, int) override { return nobody(); }
    bool done(Ticket) override { return true; }
    void wait(Ticket) override {}

  private:
    static Ticket copy(std::span<std::byte> to, std::span<const std::byte> from) {
        TUTTI_CHECK(to.size() == from.size(), "{} bytes into {}", from.size(), to.size());
        if (!to.empty() && to.data() != from.data()) std::memcpy(to.data(), from.data(), from.size());
        return 0;
    }
    static Ticket nobody() {
        TUTTI_CHECK(false, "a message in a group of one");
        return 0;
    }

    std::string name_;
};

class SingleWorld final : public World {
  public:
    int rank() const override { return 0; }
    int size() const override { return 1; }
    Seconds timeout() const override { return default_timeout; }
    bool shares_process() const override { return false; }
    Group& all() override { return all_; }
    std::unique_ptr<Group> group(std::string name, std::vector<int> members, int) override {
        TUTTI_CHECK(members == std::vector<int>{0}, "{} has {} members", name, members.size());
        return std::make_unique<SingleGroup>(std::move(name));
    }
    void fail(const std::string& sentence, int status) noexcept override { failure_ = {sentence, status}; }
    void complain(const std::string& complaint) noexcept override { failure_ = {complaint}; }
    std::optional<Failure> failure() override { return failure_; }
    void observe(std::function<void(const OperationRecord&)>) override {} // nothing takes time

  private:
    std::optional<Failure> failure_;
    SingleGroup all_{"world"};
};

} // namespace

std::unique_ptr<Group> make_single_group(std::string name) { return std::make_unique<SingleGroup>(std::move(name)); }
std::unique_ptr<World> make_single_world() { return std::make_unique<SingleWorld>(); }

} // namespace tutti::comm
