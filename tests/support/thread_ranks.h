// Ranks as threads that exchange bytes over one board: what tests of agreement and of shared files need of a Group.
#pragma once

#include "base/error.h"
#include "comm/group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

namespace tutti::test {

// Every rank lays something on the board; when all have, everyone sees all of it.
class Board {
  public:
    explicit Board(int ranks) : parts_(static_cast<std::size_t>(ranks)) {}

    std::vector<std::vector<std::byte>> exchange(int rank, std::span<const std::byte> mine) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return lost_ || !full_; }); // the round before is over
        if (lost_) throw WorldError("a rank of the test has ended");
        parts_[static_cast<std::size_t>(rank)].assign(mine.begin(), mine.end());
        full_ = ++here_ == parts_.size();
        changed_.notify_all();
        changed_.wait(lock, [&] { return lost_ || full_; });
        if (!full_) throw WorldError("a rank of the test has ended");
        auto result = parts_;
        if (--here_ == 0) full_ = false;
        changed_.notify_all();
        return result;
    }
    void lose() {
        const std::lock_guard lock(mutex_);
        lost_ = true;
        changed_.notify_all();
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::vector<std::byte>> parts_;
    std::size_t here_ = 0;
    bool full_ = false, lost_ = false;
};

class BoardGroup final : public Group {
  public:
    BoardGroup(Board& board, int rank, int size) : board_(board), rank_(rank), size_(size) {}

    const std::string& name() const override { return name_; }
    int rank() const override { return rank_; }
    int size() const override { return size_; }
    Ticket all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                      std::span<const std::int64_t> counts) override {
        std::size_t at = 0, rank = 0;
        for (const std::vector<std::byte>& part : board_.exchange(rank_, mine)) {
            EXPECT_EQ(static_cast<std::int64_t>(part.size()), counts[rank++]);
            std::ranges::copy(part, all.begin() + static_cast<std::ptrdiff_t>(at));
            at += part.size();
        }
        EXPECT_EQ(at, all.size());
        return 0;
    }
    Ticket broadcast(std::span<std::byte> data, int root) override {
        const auto all = board_.exchange(rank_, data);
        std::ranges::copy(all[static_cast<std::size_t>(root)], data.begin());
        return 0;
    }
    Ticket all_reduce(std::span<std::byte>, DType, Combine) override { return missing(); }
    Ticket reduce_scatter(std::span<const std::byte>, std::span<std::byte>, std::span<const std::int64_t>, DType,
                          Combine) override {
        return missing();
    }
    Ticket all_to_all(std::span<const std::byte>, std::span<const std::int64_t>, std::span<std::byte>,
                      std::span<const std::int64_t>) override {
        return missing();
    }
    Ticket send(std::span<const std::byte>, int) override { return missing(); }
    Ticket receive(std::span<std::byte>, int) override { return missing(); }
    bool done(Ticket) override { return true; }
    void wait(Ticket) override {}

  private:
    static Ticket missing() {
        TUTTI_CHECK(false, "the board has no such operation");
        return 0;
    }

    Board& board_;
    int rank_, size_;
    std::string name_ = "board";
};

// Runs `body` on as many ranks and tells what each threw: "WorldError: sentence", or "" where it returned.
inline std::vector<std::string> run_ranks(int ranks, const std::function<void(Group&)>& body) {
    Board board(ranks);
    std::vector<std::string> ends(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            BoardGroup group(board, rank, ranks);
            std::string& end = ends[static_cast<std::size_t>(rank)];
            try {
                body(group);
            } catch (const Error& error) {
                end = std::string("Error: ") + error.what();
            } catch (const WorldError& error) {
                end = std::string("WorldError: ") + error.what();
            } catch (const std::exception& error) {
                end = std::string("another: ") + error.what();
            }
            if (!end.empty()) board.lose();
        });
    for (std::thread& thread : threads) thread.join();
    return ends;
}

} // namespace tutti::test
