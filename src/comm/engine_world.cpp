#include "comm/engine_world.h"

#include "base/error.h"
#include "comm/single_group.h"

#include <algorithm>
#include <exception>

namespace tutti::comm {
namespace {

class EngineGroup final : public Group {
  public:
    EngineGroup(Engine& engine, GroupPointer state) : engine_(engine), state_(std::move(state)) {
        engine_.add_group(state_);
    }
    // Buffers may go the way of the group: the engine lets go of them first. That ends the run, also for the others.
    ~EngineGroup() override {
        const bool is_over = std::ranges::all_of(open_, [](const auto& one) { return one.second->is_finished(); });
        if (!is_over) engine_.abandon();
        engine_.remove_group(state_);
    }

    const std::string& name() const override { return state_->name; }
    int rank() const override { return state_->rank; }
    int size() const override { return state_->size(); }

    Ticket all_reduce(std::span<std::byte> data, DType dtype, Combine combine) override {
        return start(make_all_reduce(state_, data, dtype, combine));
    }
    Ticket all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                      std::span<const std::int64_t> counts) override {
        return start(make_all_gather(state_, mine, all, counts));
    }
    Ticket reduce_scatter(std::span<const std::byte> all, std::span<std::byte> mine,
                          std::span<const std::int64_t> counts, DType dtype, Combine combine) override {
        return start(make_reduce_scatter(state_, all, mine, counts, dtype, combine));
    }
    Ticket all_to_all(std::span<const std::byte> out, std::span<const std::int64_t> out_counts, std::span<std::byte> in,
                      std::span<const std::int64_t> in_counts) override {
        return start(make_all_to_all(state_, out, out_counts, in, in_counts));
    }
    Ticket broadcast(std::span<std::byte> data, int root) override { return start(make_broadcast(state_, data, root)); }
    Ticket send(std::span<const std::byte> data, int to) override { return start(make_send(state_, data, to)); }
    Ticket receive(std::span<std::byte> data, int from) override { return start(make_receive(state_, data, from)); }

    bool done(Ticket ticket) override {
        const OperationPointer operation = find(ticket);
        return !operation || engine_.is_done(*operation);
    }
    void wait(Ticket ticket) override {
        const OperationPointer operation = find(ticket);
        if (!operation) return;
        engine_.wait(*operation);
        const std::lock_guard lock(mutex_);
        open_.erase(ticket);
    }

  private:
    Ticket start(const OperationPointer& operation) {
        const std::lock_guard lock(mutex_); // so that tickets and operations have one order
        engine_.start(operation);
        open_.emplace(++last_ticket_, operation);
        return last_ticket_;
    }
    OperationPointer find(Ticket ticket) { // none: it was waited for
        const std::lock_guard lock(mutex_);
        TUTTI_CHECK(ticket >= 0 && ticket <= last_ticket_, "ticket {} of {}", ticket, last_ticket_);
        const auto place = open_.find(ticket);
        return place == open_.end() ? nullptr : place->second;
    }

    Engine& engine_;
    GroupPointer state_;
    std::mutex mutex_;
    std::unordered_map<Ticket, OperationPointer> open_;
    Ticket last_ticket_ = 0;
};

class EngineWorld final : public World {
  public:
    EngineWorld(const Engine::OpenTransport& open, Seconds timeout, Seconds silence) : engine_(open, timeout, silence) {
        std::vector<int> everyone(size());
        for (int rank = 0; rank < size(); ++rank) everyone[rank] = rank;
        all_ = make_group("world", std::move(everyone), 0);
    }
    // An error that nobody reported by fail() must not leave the others waiting.
    ~EngineWorld() override {
        all_.reset();
        if (engine_.failure() || std::uncaught_exceptions() > 0)
            engine_.fail({fmt::format("rank {} ended before its work was done", rank()), status_bug});
    }

    int rank() const override { return engine_.rank(); }
    int size() const override { return engine_.size(); }
    Seconds timeout() const override { return engine_.timeout(); }
    bool shares_process() const override { return engine_.shares_process(); }
    Bytes room_of_group(int ranks) const override { return ranks > 1 ? engine_.room_of_group(ranks) : Bytes{}; }
    Group& all() override { return *all_; }
    std::unique_ptr<Group> group(std::string name, std::vector<int> members, int channel) override {
        TUTTI_CHECK(channel > 0 && channel < channels, "channel {} of group {}", channel, name);
        return make_group(std::move(name), std::move(members), channel);
    }
    void fail(const std::string& sentence, int status) noexcept override { engine_.fail({sentence, status}); }
    void complain(const std::string& complaint) noexcept override { engine_.complain(complaint); }
    std::optional<Failure> failure() override { return engine_.failure(); }
    void observe(std::function<void(const OperationRecord&)> observer) override {
        engine_.observe(std::move(observer));
    }

  private:
    std::unique_ptr<Group> make_group(std::string name, std::vector<int> members, int channel) {
        const auto mine = std::ranges::find(members, rank());
        TUTTI_CHECK(mine != members.end(), "rank {} is no member of group {}", rank(), name);
        for (const int member : members)
            TUTTI_CHECK(member >= 0 && member < size() && std::ranges::count(members, member) == 1,
                        "rank {} in group {} of a world of {}", member, name, size());
        if (members.size() == 1) return make_single_group(std::move(name));
        auto state = std::make_shared<GroupState>();
        state->name = std::move(name);
        state->rank = static_cast<int>(mine - members.begin());
        state->members = std::move(members);
        state->channel = channel;
        state->sends.resize(state->members.size());
        state->receives.resize(state->members.size());
        state->rooms = rooms_;
        return std::make_unique<EngineGroup>(engine_, std::move(state));
    }

    Engine engine_;
    std::shared_ptr<Rooms> rooms_ = std::make_shared<Rooms>();
    std::unique_ptr<Group> all_;
};

} // namespace

std::unique_ptr<World> make_world(const Engine::OpenTransport& open, Seconds timeout, Seconds silence) {
    return std::make_unique<EngineWorld>(open, timeout, silence);
}

} // namespace tutti::comm
